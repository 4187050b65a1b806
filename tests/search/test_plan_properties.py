"""What makes a box better makes no plan worse: another device, more memory, faster links.

Budgets are the same number of evaluations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.search.plans import layers, plan_of
from tfplace.core.plan import AS_GOOD
from tfplace.testing.problems import make_topology


class Case(NamedTuple):
    """A chain of layers, and a box of alike devices.

    Attributes:
      seconds: of each layer.
      sizes: bytes of each weight.
      update_s: of each update.
      examples: in the batch.
      devices: of the box.
      bandwidth: bytes per second.
      memory: bytes of each device.
    """

    seconds: tuple[float, ...]
    sizes: tuple[int, ...]
    update_s: float
    examples: int
    devices: int
    bandwidth: float
    memory: int

    @property
    def step_s(self):
        """Of the row that is taken; infinite if nothing fits."""
        topology = make_topology(self.devices, bandwidth=self.bandwidth, latency=0.0, memory=self.memory)
        read = layers(topology, self.seconds, self.sizes, examples=self.examples, most=4, update_s=self.update_s)
        chosen = plan_of(read, budget="100 evaluations").chosen
        return math.inf if chosen is None else chosen.cost.step_s


@st.composite
def cases(draw):
    count = draw(st.integers(1, 2))
    return Case(
        tuple(draw(st.lists(st.sampled_from((0.5, 1.0, 3.0)), min_size=count, max_size=count))),
        tuple(draw(st.lists(st.sampled_from((1, 4)), min_size=count, max_size=count))),
        draw(st.sampled_from((0.0, 0.5))),
        draw(st.sampled_from((4, 6))),  # no fewer than devices, as MirroredStrategy then is no way to run it
        draw(st.integers(1, 3)),
        draw(st.sampled_from((0.5, 2.0, 100.0))),
        draw(st.sampled_from((16, 24, 32, 1000))),
    )


BETTER = {
    "another device": lambda case: case._replace(devices=case.devices + 1),
    "more memory": lambda case: case._replace(memory=2 * case.memory),
    "faster links": lambda case: case._replace(bandwidth=2 * case.bandwidth),
}


@pytest.mark.parametrize("better", BETTER)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_a_better_box_makes_no_plan_worse(better, case):
    assert BETTER[better](case).step_s <= AS_GOOD * case.step_s
