"""The largest batch that fits: which sizes are tried, what counts as fitting, and how it ends."""

from __future__ import annotations

import pytest

from tests.search.plans import layers, plan_of
from tfplace.errors import InfeasibleError, InputError, SourceError
from tfplace.report.largest_batch_table import largest_verdict
from tfplace.search.largest_batch import find_largest, part_of
from tfplace.testing.problems import make_topology

EXAMPLE = 1024
"""Bytes of an example's results on one device."""


def found(most, given, *, seconds=float, refused=()):
    """The largest batch of a step on one device, and the sizes in the order in which they were planned.

    Args:
      most: examples for which there is room.
      given: to begin with.
      seconds: of a step with so many examples.
      refused: sizes that the model does not take.
    """
    numbers = []

    def plan(examples):
        numbers.append(examples)
        if examples in refused:
            raise SourceError(f"{examples} examples", "another number")
        fits = examples <= most
        topology = make_topology(1, memory=2**20 if fits else 1)
        return plan_of(layers(topology, [seconds(examples)], [EXAMPLE], examples=examples, most=1), "1 evaluation")

    return find_largest(plan, given, lambda text: None), numbers


def test_sizes_double_and_are_then_bisected_in_steps_of_the_given_batch():
    answer, numbers = found(100, 32)
    assert numbers[:3] == [32, 64, 128] and answer.examples == 96
    assert all(number % 8 == 0 for number in numbers)
    assert "largest batch is 96" in largest_verdict(answer) and answer.plan.examples in (0, 96)


def test_smaller_sizes_are_tried_where_the_given_one_does_not_fit():
    answer, numbers = found(5, 32)
    assert numbers == [32, 16, 8, 4, 6, 5] and answer.examples == 5


def test_large_sizes_are_found_up_to_a_sixteenth():
    answer, numbers = found(1000, 8)
    assert 1000 / (1 + 1 / 16) <= answer.examples <= 1000 and len(numbers) < 15


def test_not_even_one_example_is_an_error_with_bytes():
    with pytest.raises(InfeasibleError, match="not even one of 1") as told:
        found(0, 8)
    (shortage,) = told.value.shortages
    assert shortage.device == "GPU:0" and shortage.need_bytes > shortage.limit_bytes


def test_a_size_whose_examples_take_far_longer_does_not_count():
    answer, _ = found(1000, 8, seconds=lambda examples: examples * (1.0 if examples <= 32 else 3.0))
    assert answer.examples == 32 and answer.fastest.examples == 8
    assert any("fits, but makes only" in one.way for one in answer.tried)


def test_a_size_that_the_model_does_not_take_ends_the_way_up_and_the_given_one_is_an_error():
    assert found(1000, 8, refused={32})[0].examples in range(16, 32)
    with pytest.raises(SourceError):
        found(1000, 8, refused={8})


def test_what_was_found_is_kept_if_the_user_stops_it():
    def stop(examples):
        if examples > 16:
            raise KeyboardInterrupt
        return 1.0

    answer, _ = found(1000, 8, seconds=stop)
    assert answer.examples == 16 and "interrupted" in answer.notes[0]


def test_a_stop_within_the_plan_of_a_size_ends_all_and_keeps_what_that_found():
    numbers = []

    def plan(examples):
        numbers.append(examples)
        read = layers(make_topology(2), [1.0], [EXAMPLE], examples=examples)

        def stopped(slices):
            if examples == 32 and slices is not None:
                raise KeyboardInterrupt
            return read(slices)

        return plan_of(stopped, "1 evaluation")

    answer = find_largest(plan, 16, lambda text: None)
    assert numbers == [16, 32] and answer.examples == 32 and "interrupted" in answer.notes[0]


def test_each_size_gets_a_tenth_of_the_budget():
    assert part_of("30s") == 3.0 and part_of("500 evaluations") == 50 and part_of(3) == 1
    with pytest.raises(InputError):
        part_of("soon")
