"""What a device holds at its peak, against the oracle's lifetimes of the same step."""

from hypothesis import given, settings

from tests.simulation.oracle import Oracle
from tests.simulation.varied import varied_problems
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.holdings import HoldingKind


@settings(max_examples=60, deadline=None)
@given(varied_problems())
def test_holdings_are_those_of_the_oracle_and_add_up_to_the_peak(varied):
    problem, unit_device, options = varied
    op_device = problem.expand(unit_device)
    simulator, oracle = Simulator(problem, options), Oracle(problem, op_device, options)
    cost = simulator.devices(op_device)
    for d in range(problem.num_devices):
        held = simulator.holdings(op_device, d)
        assert sum(holding.size_bytes for holding in held) == cost.peak_bytes[d]
        assert [holding.size_bytes for holding in held] == sorted((h.size_bytes for h in held), reverse=True)
        row = oracle.memory()[d]
        when = next(t for t, size in row if size == max(size for _, size in row))
        alive = sorted(size for where, a, b, size in oracle.lifetimes() if where == d and a <= when < b and size)
        mine = [h.size_bytes for h in held if h.kind not in (HoldingKind.VARIABLE, HoldingKind.COPY)]
        copies = sum(h.size_bytes for h in held if h.kind == HoldingKind.COPY)
        assert sum(alive) == sum(mine) + copies
        if not copies:
            assert alive == sorted(mine)
