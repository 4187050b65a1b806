"""Plans of steps written by hand: no model, no TensorFlow."""

from __future__ import annotations

import dataclasses

from tests.placers.test_data_parallel import split_step
from tfplace.errors import FewExamplesError, SplitError
from tfplace.options import SearchOptions
from tfplace.search.place import search_placement
from tfplace.search.planning import make_plan
from tfplace.testing.problems import make_problem


def plan_of(read, budget="200 evaluations", **fields):
    """What is planned of the problems that are read for numbers of slices."""

    def search(problem, options):
        return search_placement(problem, **options.given() | {"evaluator": None, "progress": None})

    def nothing_again(placement, goes_on):
        return placement

    options = SearchOptions.of("plan", {"budget": budget, "baselines": (), "seed": 0}).check()
    return make_plan(read, search, options, nothing_again, **fields)


def layers(topology, seconds, sizes, *, examples=4, most=4, update_s=0.0, **settings):
    """Reads a chain of layers for a number of slices: op i of each slice reads weight i and what op i - 1 has made.

    Args:
      topology: the devices.
      seconds: of each layer, for all examples together.
      sizes: bytes of each weight, and of each layer's result in each slice.
      examples: in the batch.
      most: slices into which it can be split.
      update_s: seconds of each weight's update.
      **settings: of `make_problem`.
    """

    def read(slices):
        count = slices if isinstance(slices, int) else len(slices or (1,))
        if count > examples:
            raise FewExamplesError(count, examples)
        if count > most:
            raise SplitError(f"{count} slices", f"1 to {most}")
        shares = _shares(slices, examples)
        graph = split_step(len(shares), sizes)
        whole = None if slices is None else dataclasses.replace(graph.slices, sizes=shares)
        graph = dataclasses.replace(graph, slices=whole)
        taken = {
            f"slice{k}/op{i}": seconds[i] * share / examples
            for k, share in enumerate(shares)
            for i in range(len(seconds))
        }
        taken |= {f"w{i}/update": update_s for i in range(len(sizes))}
        return make_problem(graph, topology, taken, **settings)

    return read


def _shares(slices, examples):
    if slices is None:
        return (examples,)
    if not isinstance(slices, int):
        return slices
    each, more = divmod(examples, slices)
    return (each + 1,) * more + (each,) * (slices - more)


def seconds_of(plan):
    """Row -> seconds of its step; infinite if it does not fit."""
    return {row.name: row.cost.step_s if row.cost.feasible else float("inf") for row in plan.rows}
