"""GPipe: stages of one device each, all slices forward and then all slices backward."""

from __future__ import annotations

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.group.sharing import split_slices
from tfplace.local_search.devices import compute_devices, settle
from tfplace.schedule.pipeline.straight import straight_placements


class GPipe(Placer):
    """Cuts the forward pass into stages for the shortest step, where a stage keeps what all slices need to go back.

    Every slice goes through all stages; a stage's variables, with their slots, updates and sums of gradients, are on
    its device. Stages are chosen by sum(t) + (K - 1) max(t), with t seconds of one of K slices in a stage, and must fit
    the devices. A few of the best cuts, among them one for each number of stages, are evaluated.

    Departures: the paper balances the stages' estimated seconds; transfers are counted here, too, and a device may be
    left out. Activations are kept, not computed again. In which order slices run on a device is the evaluator's choice.
    """

    citation = (
        "Y. Huang et al.: GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism. NeurIPS 2019; "
        "without recomputation."
    )
    needs_slices = True

    def place(self, context: SearchContext) -> IntArray:
        """Evaluates a few cuts.

        Raises:
          InputError: the step is not split.
        """
        problem = context.problem
        slices = split_slices(problem.graph, "gpipe")
        wanted = straight_placements(problem, slices, compute_devices(problem), all_held=True)
        return min((settle(problem, devices) for devices in wanted), key=context.key)
