"""What makes a box better makes no plan worse: another device, more memory, faster links.

Budgets are the same number of evaluations. With another device another number of slices is tried. So that is asked for
where memory is ample and the batch has as many examples for each device; else a number that is not tried may be better.
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
        read = layers(topology, self.seconds, self.sizes, examples=self.examples, most=6, update_s=self.update_s)
        chosen = plan_of(read, budget="100 evaluations").chosen
        return math.inf if chosen is None else chosen.cost.step_s


ROOM = 1000


@st.composite
def cases(draw, memory):
    count = draw(st.integers(1, 2))
    return Case(
        tuple(draw(st.lists(st.sampled_from((0.5, 1.0, 3.0)), min_size=count, max_size=count))),
        tuple(draw(st.lists(st.sampled_from((1, 4)), min_size=count, max_size=count))),
        draw(st.sampled_from((0.0, 0.5))),
        draw(st.sampled_from((6, 12))),  # as many for each of one, two or three devices
        draw(st.integers(1, 2)),
        draw(st.sampled_from((0.5, 2.0, 100.0))),
        draw(st.sampled_from(memory)),
    )


def another_device(case):
    return case._replace(devices=case.devices + 1, memory=ROOM), case._replace(memory=ROOM)


def more_memory(case):
    return case._replace(memory=2 * case.memory), case


def faster_links(case):
    return case._replace(bandwidth=2 * case.bandwidth), case


BETTER = [another_device, more_memory, faster_links]
MEMORY = (16, 24, 32, ROOM)


@pytest.mark.parametrize("better", BETTER)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(MEMORY))
def test_a_better_box_makes_no_plan_worse(better, case):
    one, other = better(case)
    assert one.step_s <= AS_GOOD * other.step_s


@pytest.mark.slow
@pytest.mark.parametrize("better", BETTER)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(MEMORY))
def test_nor_does_it_on_many_boxes(better, case):
    one, other = better(case)
    assert one.step_s <= AS_GOOD * other.step_s
