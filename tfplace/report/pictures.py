"""What a placement looks like, as SVG: its timeline, layers, graph and memory. For notebooks and comparisons."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.timeline import Timeline
from tfplace.formatting import format_bytes
from tfplace.group.co_placement import merge
from tfplace.group.flow import flow
from tfplace.group.merge import renumber
from tfplace.group.unit_graph import sum_parallel
from tfplace.report.colours import device_colours
from tfplace.report.page.layers_view import layers_picture
from tfplace.report.page.timeline_view import timeline_picture

_GROUPS = 150
"""Of a graph's picture: more circles than these run into one another."""

_ACROSS, _ROUNDS = 40, 8
"""Columns of a graph's picture, and how often nodes are moved to those they are joined to."""

_LITTLE = 0.01
"""Less than this part of what flows between any two groups is not drawn: most would be lines of single numbers."""

_WIDTH, _GRAPH_HEIGHT, _BAR = 400, 220, 26

_FAR = 3.0
"""A limit of more than so many times the largest peak would leave nothing to be seen of the bars."""


class Picture(NamedTuple):
    """A picture for a page.

    Attributes:
      caption: what it shows, as text.
      html: the element.
    """

    caption: str
    html: str


def placement_pictures(placement: Placement) -> list[Picture]:
    """All pictures of a placement that knows its problem.

    Raises:
      PlacementError: the placement does not know its problem.
    """
    timeline, problem = placement.timeline(), placement.problem
    assert problem is not None  # else there was no timeline
    return [
        Picture(
            "When each device computes (in color) and sends or receives (below), simulated", timeline_picture(timeline)
        ),
        Picture(
            "Layers in the order of the forward pass: seconds of their ops, forward and back, by device",
            layers_picture(placement),
        ),
        Picture(
            "The graph, from left to right by when its ops run; a circle is a group of ops, as large as its seconds",
            graph_picture(problem, timeline),
        ),
        Picture("Memory of each device: the most in use, and the limit", memory_picture(placement)),
    ]


def graph_picture(problem: Problem, timeline: Timeline) -> str:
    """Groups of ops that are on one device, by when they run, and what flows between them."""
    group, src, dst = _groups(problem, timeline.op_device)
    inside = group >= 0
    group, device_of = group[inside], timeline.op_device[inside]
    count = int(group.max(initial=-1)) + 1
    device = np.zeros(count, np.int32)
    device[group] = device_of
    size = np.bincount(group, problem.costs.compute_s[inside, device_of], count)
    middle = (timeline.start_s + timeline.finish_s)[inside] / 2
    when = np.bincount(group, middle, count) / np.maximum(np.bincount(group, minlength=count), 1)
    x = _scaled(when, 12, _WIDTH - 12)
    y = _scaled(_heights(when, src, dst), 12, _GRAPH_HEIGHT - 12)
    radius = np.sqrt(3 + 110 * size / max(float(size.max(initial=0.0)), 1e-12))
    lines = "".join(f"M{x[a]:.0f} {y[a]:.0f}L{x[b]:.0f} {y[b]:.0f}" for a, b in zip(src, dst, strict=True))
    colours = device_colours(problem.topology.device_names)
    circles = "".join(
        f'<circle cx="{x[g]:.1f}" cy="{y[g]:.1f}" r="{radius[g]:.1f}" fill="{colours[device[g]]}" fill-opacity=".85">'
        f"<title>{escape(problem.topology.device_names[device[g]])}</title></circle>"
        for g in range(count)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_GRAPH_HEIGHT}" role="img" aria-label="The graph, colored by device">'
        f'<path d="{lines}" stroke="#999" stroke-width=".4" fill="none"/>{circles}</svg>'
    )


def memory_picture(placement: Placement) -> str:
    """A bar for each device, and a mark at its limit unless that is far off."""
    cost, names = placement.predicted, placement.device_names
    colours = device_colours(names)
    near = cost.limit_bytes <= _FAR * cost.peak_bytes.max(initial=0)
    most = max(int(cost.peak_bytes.max(initial=0)), int(cost.limit_bytes[near].max(initial=0)), 1)
    rows = []
    for d, (name, peak, limit) in enumerate(
        zip(names, cost.peak_bytes.tolist(), cost.limit_bytes.tolist(), strict=True)
    ):
        y, used, end = _BAR * d, (_WIDTH - 4) * max(peak, 0) / most, (_WIDTH - 4) * limit / most
        rows.append(
            f'<text x="0" y="{y + 10}" font-size="9" fill="currentColor">'
            f"{escape(name)}: {format_bytes(max(peak, 0))} of {format_bytes(limit)}</text>"
            f'<rect x="0" y="{y + 13}" width="{used:.1f}" height="8" fill="{colours[d]}"/>'
        )
        rows += [f'<rect x="{end:.1f}" y="{y + 11}" width="2" height="12" fill="currentColor"/>'] if near[d] else []
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_BAR * len(names)}" role="img" aria-label="Memory of each device">'
        f"{''.join(rows)}</svg>"
    )


def _scaled(values: FloatArray, low: float, high: float) -> FloatArray:
    """The values between two others; all in the middle if they are the same."""
    least, most = values.min(initial=np.inf), values.max(initial=-np.inf)
    if not most > least:
        return np.full(len(values), (low + high) / 2)
    scaled: FloatArray = low + (high - low) * (values - least) / (most - least)
    return scaled


def _groups(problem: Problem, op_device: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """[V] group of each op, -1 for copies of constants; [P] and [P] pairs of groups between which much flows.

    A group's ops are on one device.
    """
    unit_of = problem.grouping.unit_of
    if not problem.num_units:  # constants only
        none = np.zeros(0, np.int32)
        return np.full(len(unit_of), -1, np.int32), none, none
    few = problem.num_units <= _GROUPS
    label = np.arange(problem.num_units, dtype=np.int32) if few else merge(problem, _GROUPS)
    unit_device = np.zeros(problem.num_units, np.int32)
    unit_device[unit_of[unit_of >= 0]] = op_device[unit_of >= 0]
    label = renumber(label * problem.num_devices + unit_device)
    group = np.where(unit_of >= 0, label[np.maximum(unit_of, 0)], -1)
    edges = flow(problem)
    src, dst, size = sum_parallel(group[edges.src], group[edges.dst], edges.size_bytes * edges.trips, len(group))
    much = (src != dst) & (size >= _LITTLE * size.max(initial=0.0)) & (size > 0)
    return group, src[much], dst[much]


def _heights(x: FloatArray, src: IntArray, dst: IntArray) -> FloatArray:
    """[N] for each node, near those it is joined to; nodes of one column of the picture are evenly spaced."""
    column = np.floor(_ACROSS * x / max(float(x.max(initial=0.0)), 1e-12)).astype(np.int64)
    y = np.zeros(len(x))
    for _ in range(_ROUNDS):
        total = np.bincount(dst, y[src], len(x)) + np.bincount(src, y[dst], len(x))
        near = total / np.maximum(np.bincount(dst, minlength=len(x)) + np.bincount(src, minlength=len(x)), 1)
        for here in (np.flatnonzero(column == c) for c in np.unique(column)):
            ordered = here[np.argsort(near[here], kind="stable")]
            y[ordered] = np.arange(len(here)) - (len(here) - 1) / 2
    return y
