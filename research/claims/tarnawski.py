"""Tarnawski et al. (2020): optimal contiguous pipelines by a dynamic programme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfplace.core.stepcost import THROUGHPUT

PAPER = "Tarnawski et al., NeurIPS 2020"
PLACER = "contiguous"
"""Their dynamic programme; it has no random choices, and one run."""

_DIGITS = 3
"""Of a percent; both files are rounded further down."""


def gains(results: Mapping[str, Any], reference: Mapping[str, Any]) -> list[float]:
    """Percent by which the largest load is below that published for their programme, of each workload that was run.

    Args:
      results: what research/benchmarks/dnn_partitioning/run.py writes.
      reference: what is known of its workloads.
    """
    ran = {name: run for name in sorted(reference) if (run := results.get(f"{THROUGHPUT} {name} {PLACER} 0"))}
    loads = [(run["value_ms"], reference[name]["values"]["msr_dp"]["value"]) for name, run in ran.items()]
    return [round(100 * (1 - ours / theirs), _DIGITS) for ours, theirs in loads]
