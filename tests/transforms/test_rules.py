"""Every sharding rule against TensorFlow: what slices compute is what the whole batch gives."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.transforms.compositions import AXES, Composition, arguments
from tests.transforms.op_cases import BATCH, TABLE, elsewhere
from tests.transforms.splitting import SLICES, copies, difference, split_outputs
from tfplace.transforms.sharding import RULES
from tfplace.transforms.sharding.draws import COUNTED, STATEFUL

CONTROL = {"Assert", "Enter", "Exit", "LoopCond", "Merge", "NextIteration", "NoOp", "RefEnter", "RefExit", "Switch"}
LISTS = {
    "EmptyTensorList",
    *(f"TensorList{what}" for what in ("ElementShape", "FromTensor", "GetItem", "Length", "PopBack", "PushBack")),
    *(f"TensorList{what}" for what in ("Reserve", "Resize", "SetItem", "Stack")),
}
RESOURCES = {"LookupTableFind", "LookupTableFindV2", "ResourceGather", "ResourceGatherNd"}
GRADIENTS = {"FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"}
ELSEWHERE = CONTROL | LISTS | RESOURCES | GRADIENTS | STATEFUL | COUNTED | {"TopK"}
"""Op types that are no function of tensors alone, and one that TensorFlow has removed; whole steps have the others."""


class Program:
    """Cases side by side in one function; their arguments."""

    def __init__(self, cases):
        random = np.random.default_rng(0)
        self.cases = cases
        tensors = [tensor for case in cases for tensor in case.tensors]
        self.arguments = [tensor.values(BATCH, random) for tensor in tensors]
        self.axes = {i: tensor.argument[1] for i, tensor in enumerate(tensors)}
        self.owners = []
        leader = next(i for i, axis in self.axes.items() if axis is not None)

        def everything(*arguments):
            batch = arguments[leader].shape[self.axes[leader]]
            left, out, self.owners = iter(arguments), [], []
            for number, case in enumerate(cases):
                made = case.build(left, batch, f"case{number}")
                self.owners += [number] * len(made)
                out += made
            return out

        self.function = tf.function(everything, autograph=False)
        self.plain = [np.asarray(out) for out in self.function(*map(tf.constant, self.arguments))]

    def wrong(self, slices):
        """Cases whose numbers a split changes, and the split graph."""
        graph, found = split_outputs(self.function, self.arguments, slices, self.axes)
        assert len(found) == len(self.plain)
        pairs = zip(self.owners, self.plain, found, strict=True)
        return graph, [(self.cases[n], why) for n, a, b in pairs if (why := difference(a, b))]


@pytest.fixture(scope="module")
def programs():
    made = {}
    return lambda name: made.setdefault(name, Program(TABLE[name]) if name not in made else made[name])


DROPPED = {"Identity", "IdentityN", "PreventGradient", "StopGradient"}
"""What TensorFlow drops while the step is read; the numbers that went through are compared all the same."""


@pytest.mark.parametrize("slices", SLICES, ids=str)
@pytest.mark.parametrize("name", TABLE)
def test_slices_of_an_op_give_what_the_whole_batch_gives(programs, name, slices):
    program = programs(name)
    graph, wrong = program.wrong(slices)
    assert wrong == []
    count = len(graph.slices.sizes)
    for number, case in enumerate(program.cases):
        wanted = count if case.copied and case.op not in DROPPED else 0
        assert copies(graph, f"case{number}") == wanted, case


def test_the_table_has_every_op_type_that_has_a_rule():
    have = {case.op for cases in TABLE.values() for case in cases}
    assert {*RULES} - have == ELSEWHERE


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TABLE.keys() - {"pictures"}))
def test_no_division_of_the_inputs_changes_numbers(name):
    """Kernels of gradients do not check that shapes fit, and one op has a shape of its own, so they stay out."""
    out = ("Grad", "Backprop", "Bitcast", "PlaceholderWithDefault")
    cases = elsewhere([case for case in TABLE[name] if not any(part in case.op for part in out)], most=12)
    for at in range(0, len(cases), 100):
        program = Program(cases[at : at + 100])
        for slices in SLICES:
            assert program.wrong(slices)[1] == []


PROGRAMS = 24
"""Random programs in one function."""


@pytest.mark.parametrize("first", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 15))])
def test_random_programs_keep_their_numbers(first):
    seeds = range(first * PROGRAMS, (first + 1) * PROGRAMS)
    compositions = [Composition(seed, BATCH) for seed in seeds]
    owners = []

    def everything(*given):
        owners.clear()
        out = []
        for number, composition in enumerate(compositions):
            made = composition([*given], given[0].shape[0])
            owners.extend([number] * len(made))
            out += made
        return out

    function = tf.function(everything, autograph=False)
    given = arguments(BATCH, np.random.default_rng(first))
    plain = function(*map(tf.constant, given))
    _, found = split_outputs(function, given, SLICES[first % len(SLICES)], AXES)
    pairs = zip(owners, plain, found, strict=True)
    wrong = [(seeds[n], compositions[n].text, why) for n, a, b in pairs if (why := difference(a, b))]
    assert wrong == []
