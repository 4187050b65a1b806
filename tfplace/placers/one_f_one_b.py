"""One forward, one backward: stages of one device each, a slice going back as soon as it can."""

from __future__ import annotations

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.group.sharing import split_slices
from tfplace.local_search.devices import compute_devices, settle
from tfplace.schedule.pipeline.straight import straight_placements


class OneFOneB(Placer):
    """Cuts the forward pass into stages for the shortest step, where later stages keep less to go back.

    As `gpipe`, but a stage keeps what min(K, stages left) of the K slices need to go back, as slices go back as soon as
    the last stage is done with them. So cuts fit that do not with all K, and early stages are smaller where memory is
    short.

    Departures: those of `gpipe`; no stage is replicated, as DAPPLE's may be (see `pipedream` and `mixed`).
    """

    citation = (
        "D. Narayanan et al.: Memory-Efficient Pipeline-Parallel DNN Training. ICML 2021, PipeDream-Flush; S. Fan et "
        "al.: DAPPLE: A Pipelined Data Parallel Approach for Training Large Models. PPoPP 2021, its early backward."
    )
    needs_slices = True

    def place(self, context: SearchContext) -> IntArray:
        """Evaluates a few cuts.

        Raises:
          InputError: the step is not split.
        """
        problem = context.problem
        slices = split_slices(problem.graph, "one_f_one_b")
        wanted = straight_placements(problem, slices, compute_devices(problem), all_held=False)
        return min((settle(problem, devices) for devices in wanted), key=context.key)
