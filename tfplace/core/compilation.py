"""How a placed step is run: op by op, or compiled by XLA."""

from __future__ import annotations

NONE = "none"
XLA = "xla"
AUTO = "auto"
COMPILATIONS = (AUTO, NONE, XLA)
"""`NONE` runs ops one by one, `XLA` compiles each device's ops in clusters, `AUTO` does what the program asks for."""
