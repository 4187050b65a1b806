"""How a placed step is run: op by op, or compiled by XLA."""

from __future__ import annotations

from tfplace.core.graph import OpGraph

NONE = "none"
XLA = "xla"
AUTO = "auto"
COMPILATIONS = (AUTO, NONE, XLA)
"""`NONE` runs ops one by one, `XLA` compiles each device's ops in clusters, `AUTO` does what the program asks for."""


def wants_xla(compile: str, graph: OpGraph) -> bool:
    """Whether a step is to be compiled: `XLA`, or `AUTO` for a program that asks for it with jit_compile."""
    return compile == XLA or (compile == AUTO and bool(getattr(graph.origin, "jit_compile", False)))
