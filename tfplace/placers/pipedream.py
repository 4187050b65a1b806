"""PipeDream: contiguous stages, each on several replicas."""

from __future__ import annotations

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.group.sharing import split_slices
from tfplace.local_search.devices import compute_devices, settle
from tfplace.schedule.pipeline.replicas import replicated_placements


class PipeDream(Placer):
    """Cuts the forward pass into stages with replicas by PipeDream's programme; slices go to the replicas in turn.

    The programme (`tfplace.schedule.pipeline.replicated`) finds the least bottleneck for exactly so many equal devices.
    A bottleneck tells the pace of a full pipeline, not how long it takes to fill, so the programme's stages for each
    number of devices and of stages are set beside one another, and those of the shortest steps are evaluated. A
    variable of a replicated stage is owned by one of its devices, balanced by bytes, which adds up the gradients.

    Departures: steps are synchronous, so there is one version of the weights, whose gradients are added up once a step;
    one level of the topology; slices are shared by speed where replicas are unequal. The programme does not know the
    devices' memory, the evaluator does.
    """

    citation = (
        "D. Narayanan, A. Harlap et al.: PipeDream: Generalized Pipeline Parallelism for DNN Training. SOSP 2019, "
        "section 3.1; synchronous."
    )
    needs_slices = True

    def place(self, context: SearchContext) -> IntArray:
        """Evaluates a few plans, in each order of devices.

        Raises:
          InputError: the step is not split.
        """
        problem = context.problem
        slices = split_slices(problem.graph, "pipedream")
        wanted = replicated_placements(problem, slices, compute_devices(problem))
        return min((settle(problem, devices) for devices in wanted), key=context.key)
