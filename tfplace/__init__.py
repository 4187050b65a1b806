"""tfplace: decides which device every op of a TensorFlow model runs on, and runs the model that way.

    import tfplace
    graph = tfplace.extract(model, batch)
    placement = tfplace.place(graph, topology="4xP100", budget="30s")
    print(placement.summary())
    step = tfplace.apply(graph, placement)

Importing tfplace does not load TensorFlow; the first call that needs it does.
"""

from __future__ import annotations

import importlib

# Some functions share their name with the package that does their work. The packages are loaded first: Python binds a
# package's name to its parent when it is first loaded, and would otherwise replace the function by the package.
for _package in ("apply", "compare", "extract", "measure", "simulate"):
    importlib.import_module(f"tfplace.{_package}")

from tfplace import keras  # noqa: E402
from tfplace.api import actual_placement, apply, compare, place, simulate  # noqa: E402
from tfplace.core.constraints import Constraints  # noqa: E402
from tfplace.core.graph import OpGraph  # noqa: E402
from tfplace.core.placement import Placement  # noqa: E402
from tfplace.core.problem import Problem  # noqa: E402
from tfplace.core.topology import Topology  # noqa: E402
from tfplace.errors import InfeasibleError, TfplaceError  # noqa: E402
from tfplace.sources import extract, formulate  # noqa: E402
from tfplace.version import VERSION  # noqa: E402

__version__ = VERSION

__all__ = [
    "Constraints",
    "InfeasibleError",
    "OpGraph",
    "Placement",
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
    "place",
    "simulate",
]
