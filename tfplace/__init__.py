"""tfplace: finds the fastest way to train a TensorFlow model on your devices, and trains it that way.

    import tfplace
    plan = tfplace.plan(model, "4xP100", batch=batch, budget="30s")
    print(plan.summary())
    step = plan.apply()

Importing tfplace does not load TensorFlow; the first call that needs it does.
"""

from __future__ import annotations

from tfplace import keras
from tfplace.api import actual_placement, apply, compare, largest_batch, memory, place, plan, simulate
from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.plan import Plan
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.errors import InfeasibleError, TfplaceError
from tfplace.sources import extract, formulate, rematerialize, split
from tfplace.version import VERSION

__version__ = VERSION

__all__ = [
    "Constraints",
    "InfeasibleError",
    "OpGraph",
    "Placement",
    "Plan",
    "Problem",
    "TfplaceError",
    "Topology",
    "__version__",
    "actual_placement",
    "apply",
    "compare",
    "extract",
    "formulate",
    "keras",
    "largest_batch",
    "memory",
    "place",
    "plan",
    "rematerialize",
    "simulate",
    "split",
]
