"""Every sharding rule against TensorFlow: what slices compute is what the whole batch gives."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.transforms.compositions import AXES, Composition, arguments
from tests.transforms.op_cases import TABLE
from tests.transforms.splitting import BATCH, SLICES, copies, difference, split_outputs


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


@pytest.mark.parametrize("slices", SLICES, ids=str)
@pytest.mark.parametrize("name", TABLE)
def test_slices_of_an_op_give_what_the_whole_batch_gives(programs, name, slices):
    program = programs(name)
    graph, wrong = program.wrong(slices)
    assert not wrong
    have = {f"case{n}": copies(graph, f"case{n}") for n in range(len(program.cases))}
    count = len(graph.slices.sizes)
    assert [] == [(n, case, have[f"case{n}"]) for n, case in enumerate(program.cases) if have[f"case{n}"] != count * case.copied]


def _compositions(seeds):
    return [Composition(seed, BATCH) for seed in seeds]


@pytest.mark.parametrize("first", [*range(0, 240, 24)])
def test_random_programs_keep_their_numbers(first):
    compositions = _compositions(range(first, first + 24))
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
    _, found = split_outputs(function, given, SLICES[first // 24 % 3], AXES)
    pairs = zip(owners, plain, found, strict=True)
    assert [] == [(first + n, compositions[n].text, why) for n, a, b in pairs if (why := difference(a, b))]
