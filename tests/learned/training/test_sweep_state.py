"""What a visited unit has to do with each device, against the plainest way to say it."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.group.unit_graph import variable_bytes
from tfplace.learned.features.graph_inputs import graph_inputs
from tfplace.learned.features.sweep_state import COLUMNS, SweepState, sweep_rows
from tfplace.testing import random_problem


def setting(seed, ops, devices):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, ops, devices, unit=1e-3, tight=0.5)
    inputs = graph_inputs(problem)
    before, after = (
        np.where(inputs.prior > -1e6, rng.random((2, *inputs.prior.shape)), -1).argmax(axis=2).astype(np.int32)
        for _ in range(2)
    )
    return problem, inputs, before, after


def sent(problem, inputs):
    """{(source row, reader row): bytes}, a tensor once for each reader."""
    graph, unit_of = problem.graph, problem.grouping.unit_of
    place = {int(unit): row for row, unit in enumerate(inputs.order)}
    seen, found = set(), {}
    for src, dst, tensor, back in zip(
        graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_tensor.tolist(), graph.edge_back, strict=True
    ):
        a, b = int(unit_of[src]), int(unit_of[dst])
        if back or tensor < 0 or a == b or min(a, b) < 0 or graph.replicable[src] or graph.replicable[dst]:
            continue
        if (tensor, b) not in seen:
            seen.add((tensor, b))
            pair = place[a], place[b]
            found[pair] = found.get(pair, 0.0) + float(graph.tensor_bytes[tensor] * graph.trips[src])
    return found


def related(problem, inputs, now, row, plan):
    """[D, COLUMNS] by loops; `plan` has when devices are free and when visited rows are done."""
    of, count = sweep_rows(problem, inputs), problem.num_devices
    weight, variables = inputs.weight, variable_bytes(problem)[inputs.order]
    edges = sent(problem, inputs)
    outputs = np.zeros(len(now))
    for (a, _), size in edges.items():
        outputs[a] += size

    def transfer(a, b, size):
        return 0.0 if a == b else float(of.fixed_s[a, b] + of.byte_s[a, b] * size)

    def more(values):
        return [math.log1p(value - min(values)) for value in values]

    sources = {a: size for (a, b), size in edges.items() if b == row}
    readers = {b: size for (a, b), size in edges.items() if a == row}
    into = [sum(transfer(now[a], d, size) for a, size in sources.items()) for d in range(count)]
    outof = [sum(transfer(d, now[b], size) for b, size in readers.items()) for d in range(count)]
    ready = [
        max([plan["done"][a] + transfer(now[a], d, size) for a, size in sources.items() if a < row], default=0.0)
        for d in range(count)
    ]
    free = plan["free"]
    start = [max(ready[d], free[d]) for d in range(count)]
    finish = [start[d] + of.seconds[row, d] for d in range(count)]
    others = [g for g in range(len(now)) if g != row]
    rows = []
    for d in range(count):
        there = [g for g in others if now[g] == d]
        kept = sum(variables[g] for g in [*there, row])
        made = sum(outputs[g] for g in [*there, row])
        visited = [g for g in there if g < row]
        rows.append(
            [
                now[row] == d,
                sum(weight[g] for g in visited),
                sum(weight[g] for g in there if g > row),
                sum(weight[g] for g in visited) == 0,
                more(into)[d],
                more(outof)[d],
                more(start)[d],
                more(finish)[d],
                math.log1p(max(free) - free[d]),
                math.log1p(max(free[d] - ready[d], 0)),
                math.log1p(max(ready[d] - free[d], 0)),
                sum(s for a, s in sources.items() if now[a] == d) / max(sum(sources.values()), 1e-300),
                row > 0 and now[row - 1] == d,
                max(1 - kept / of.limit[d], -1),
                max(1 - (kept + made) / of.limit[d], -1),
            ]
        )
    return np.array(rows, float), ready


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 25), st.integers(1, 4))
def test_relations_are_what_loops_say(seed, ops, devices):
    problem, inputs, before, after = setting(seed, ops, devices)
    of = sweep_rows(problem, inputs)
    found = SweepState(of, before).follow(after)
    assert found.shape == (*before.shape, devices, COLUMNS)
    for n in range(len(before)):
        now = before[n].copy()
        plan = {"free": [0.0] * devices, "done": {}}
        for row in range(problem.num_units):
            expected, ready = related(problem, inputs, now, row, plan)
            np.testing.assert_allclose(found[n, row], expected, rtol=1e-4, atol=1e-5)
            d = now[row] = after[n, row]
            plan["done"][row] = plan["free"][d] = max(plan["free"][d], ready[d]) + of.seconds[row, d]


def test_units_are_where_they_were_put():
    problem, inputs, before, after = setting(0, 20, 3)
    state = SweepState(sweep_rows(problem, inputs), before)
    np.testing.assert_array_equal(state.devices, before)
    for row in range(problem.num_units):
        state.relate(row)
        state.put(row, after[:, row])
    np.testing.assert_array_equal(state.devices, after)
    assert not np.shares_memory(state.devices, before)
