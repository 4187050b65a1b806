"""Mixed: data parallelism over groups of devices, each of which is a pipeline."""

from __future__ import annotations

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.group.sharing import split_slices
from tfplace.local_search.devices import compute_devices, settle
from tfplace.schedule.pipeline.groups import grouped_tables
from tfplace.schedule.pipeline.slice_devices import SlicePlacement


class Mixed(Placer):
    """Divides the devices into equal groups of neighbors in all ways, and takes the best.

    Each group is a pipeline for its share of the slices, cut as `one_f_one_b` cuts; slices are shared by the groups'
    speed. With one group that is a pipeline, with groups of one device data parallelism. A variable is on one of the
    devices that have its stage in the groups, balanced by bytes. Inputs begin on the host, or where they are read.

    That is the space of D. Narayanan et al.: Efficient Large-Scale Language Model Training on GPU Clusters Using
    Megatron-LM, SC 2021, section 3, without tensor parallelism. Departures: a group may leave devices out, and unequal
    groups have cuts of their own.
    """

    citation = (
        "D. Narayanan et al.: Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM. SC "
        "2021; pipelines times data parallelism, without tensor parallelism."
    )
    needs_slices = True

    def place(self, context: SearchContext) -> IntArray:
        """Evaluates a few cuts of each division, and the best of them with inputs on the host.

        Raises:
          InputError: the step is not split.
        """
        problem = context.problem
        slices, devices = split_slices(problem.graph, "mixed"), compute_devices(problem)
        place, tables = grouped_tables(problem, slices, devices)
        placement = SlicePlacement(problem, slices, place)

        def placed(table: IntArray, home: int | None) -> IntArray:
            return settle(problem, placement.devices(table, home))

        keys = [context.key(placed(table, None)) for table in tables]
        best = tables[min(range(len(tables)), key=keys.__getitem__)]
        host = [d for d in range(problem.num_devices) if d not in devices]
        return min((placed(best, home) for home in (None, *host[:1])), key=context.key)
