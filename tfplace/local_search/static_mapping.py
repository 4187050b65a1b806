"""What `scotch` and `min_cut` have in common: Scotch's static mapping, with several tolerances."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext
from tfplace.core.stepcost import Key
from tfplace.group.mapping import static_mapping
from tfplace.group.parts import fit_variables
from tfplace.group.unit_graph import unit_graph
from tfplace.local_search.devices import settle

_TOLERANCES = (0.01, 0.05, 0.2, 0.5)


def best_mapping(context: SearchContext, devices: IntArray) -> IntArray:
    """[U] the best of what Scotch finds for some devices with each tolerance.

    Units that may be on none of them are settled as if they were mapped to the first.

    Raises:
      InputError: pyscotch is not installed.
    """
    problem, graph = context.problem, unit_graph(context.problem)
    tried: list[tuple[Key, int, IntArray]] = []
    for tolerance in _TOLERANCES:
        mapped = static_mapping(problem, graph, devices, tolerance)
        wanted = np.where(mapped < 0, devices[0], mapped)
        placed = fit_variables(problem, graph, settle(problem, wanted))
        tried.append((context.key(placed), len(tried), placed))
    return min(tried, key=lambda each: each[:2])[2]
