"""What a placement looks like: its timeline, layers, graph and memory. It needs `pip install 'tfplace[plots]'`.

Pictures are inside `img` elements: a page has everything in itself. Those of large graphs would be megabytes as SVG.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.timeline import Timeline
from tfplace.formatting import format_bytes
from tfplace.group.co_placement import merge
from tfplace.group.flow import flow
from tfplace.group.layers import layers
from tfplace.group.merge import renumber
from tfplace.group.unit_graph import sum_parallel
from tfplace.local_search.devices import compute_devices
from tfplace.report.drawing import blank, caption, device_colours, devices_legend, image

_COLUMNS = 400
"""Of a timeline: what is shorter is drawn as part of one."""

_GROUPS = 150
"""Of a graph's picture: more circles than these run into one another."""

_ACROSS, _ROUNDS = 40, 8
"""Columns of a graph's picture, and how often nodes are moved to those they are joined to."""

_LITTLE = 0.01
"""Less than this part of what flows between any two groups is not drawn: most would be lines of single numbers."""

_LAYERS = 24
_MOVED = "#222222"


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
      MissingExtraError: matplotlib is missing.
      PlacementError: the placement does not know its problem.
    """
    timeline, problem = placement.timeline(), placement.problem
    assert problem is not None  # else there was no timeline
    return [
        Picture(
            "When each device computes (filled) and sends or receives (below), simulated", timeline_picture(timeline)
        ),
        Picture(
            "Layers in the order of the forward pass: seconds of their ops, forward and back, by device",
            layers_picture(problem, placement.op_device),
        ),
        Picture(
            "The graph, from left to right by when its ops run; a circle is a group of ops, as large as its seconds",
            graph_picture(problem, timeline),
        ),
        Picture("Memory of each device: the most in use, and the limit", memory_picture(placement)),
    ]


def timeline_picture(timeline: Timeline) -> str:
    """A row for each device: the part of each slice of the step in which it computes, and in which it moves tensors."""
    count = len(timeline.device_names)
    figure, axis = blank(0.5 + 0.42 * count)
    ends = [timeline.finish_s.max(initial=0.0), timeline.moved_finish_s.max(initial=0.0)]
    edges = np.linspace(0.0, max(*ends, 1e-12), _COLUMNS + 1)
    milliseconds = 1e3 * edges[:-1]
    for d, colour in enumerate(device_colours(timeline.device_names)):
        mine = (timeline.op_device == d) & ~timeline.replicated
        moves = (timeline.moved_src == d) | (timeline.moved_dst == d)
        busy = _share(timeline.start_s[mine], timeline.finish_s[mine], edges)
        moving = _share(timeline.moved_start_s[moves], timeline.moved_finish_s[moves], edges)
        base = count - 1 - d
        axis.fill_between(milliseconds, base, base + 0.75 * busy, step="post", color=colour, linewidth=0)
        axis.fill_between(milliseconds, base, base - 0.15 * moving, step="post", color=_MOVED, linewidth=0)
    axis.set_yticks([count - 1 - d + 0.3 for d in range(count)], [caption(name) for name in timeline.device_names])
    axis.set(xlabel="milliseconds", xlim=(0, 1e3 * edges[-1]), ylim=(-0.2, count - 0.1))
    return image(figure, "Timeline of each device")


def layers_picture(problem: Problem, op_device: IntArray) -> str:
    """A column for each layer, or some next to each other: the seconds that its ops take on each device.

    Outer layers if names tell of several, and last a column of what belongs to none; else units in the order of scopes.
    """
    layer, count = _op_layers(problem)
    shown = min(count, 4 * _LAYERS)
    column = layer * shown // max(count, 1)
    inside = layer >= 0
    seconds = problem.costs.compute_s[np.arange(len(layer)), op_device]
    figure, axis = blank(2.2)
    bottom = np.zeros(shown)
    for d, colour in enumerate(device_colours(problem.topology.device_names)):
        mine = inside & (op_device == d)
        height = 1e3 * np.bincount(column[mine], seconds[mine], shown)
        axis.bar(
            np.arange(shown),
            height,
            bottom=bottom,
            width=1.0,
            color=colour,
            label=caption(problem.topology.device_names[d]),
        )
        bottom += height
    axis.set(xlabel=f"layers ({count})", ylabel="milliseconds", xlim=(-0.5, shown - 0.5))
    axis.set_xticks([])
    devices_legend(figure, problem.topology.device_names)
    return image(figure, "Seconds of each layer by device")


def _op_layers(problem: Problem) -> tuple[IntArray, int]:
    """[V] the column of each op, -1 for copied constants, and how many columns there are."""
    unit_of, outer = problem.grouping.unit_of, [v for name, v in problem.graph.layers.items() if "/" not in name]
    if len(outer) < 2:
        label = layers(problem, _LAYERS, compute_devices(problem), fewer=True)
        return np.where(unit_of >= 0, np.append(label, -1)[unit_of], -1).astype(np.int32), int(label.max(initial=0)) + 1
    column = np.full(problem.graph.num_ops, len(outer), np.int32)
    for i, ops in enumerate(outer):
        column[ops] = i
    return np.where(unit_of >= 0, column, -1).astype(np.int32), len(outer) + 1


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
    x = np.bincount(group, middle, count) / np.maximum(np.bincount(group, minlength=count), 1)
    y = _heights(x, src, dst)
    figure, axis = blank(3.2)
    gap = np.full(len(src), np.nan)  # one line with gaps
    axis.plot(
        np.stack([x[src], x[dst], gap], axis=1).ravel(),
        np.stack([y[src], y[dst], gap], axis=1).ravel(),
        color="#bbbbbb",
        linewidth=0.4,
        zorder=1,
    )
    area = 8 + 260 * size / max(float(size.max(initial=0.0)), 1e-12)
    for d, colour in enumerate(device_colours(problem.topology.device_names)):
        mine = device == d
        axis.scatter(x[mine], y[mine], s=area[mine], color=colour, linewidth=0, alpha=0.85, zorder=2)
    axis.set_axis_off()
    devices_legend(figure, problem.topology.device_names)
    return image(figure, "The graph, colored by device")


def memory_picture(placement: Placement) -> str:
    """A bar for each device, and a mark at its limit."""
    cost, names = placement.predicted, placement.device_names
    figure, axis = blank(0.5 + 0.34 * len(names))
    rows = np.arange(len(names))[::-1]
    unit, unit_name = (2**30, "GiB") if cost.peak_bytes.max() >= 2**29 else (2**20, "MiB")
    peak, limit = cost.peak_bytes / unit, cost.limit_bytes / unit
    axis.barh(rows, peak, color=device_colours(names), height=0.6)
    near = limit <= 3 * peak.max()  # a limit far off would leave nothing to be seen
    axis.plot(limit[near], rows[near], "|", color="black", markersize=14)
    axis.set_yticks(
        rows,
        [
            f"{caption(name)} of {format_bytes(size)}"
            for name, size in zip(names, cost.limit_bytes.tolist(), strict=True)
        ],
    )
    axis.set(xlabel=unit_name, xlim=(0, None))
    return image(figure, "Memory of each device")


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


def _share(begin: FloatArray, end: FloatArray, edges: FloatArray) -> FloatArray:
    """[len(edges) - 1] which part of each slice is within some span; where spans overlap it is 1 at most."""
    width = edges[1] - edges[0]
    done = np.zeros(len(edges))  # seconds within spans before each edge
    for sign, times in ((1.0, begin), (-1.0, end)):
        at = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 2)
        left = np.bincount(at, (edges[at + 1] - times), len(edges) - 1)
        whole = np.bincount(at, minlength=len(edges) - 1)
        done[:-1] += sign * (left + width * (np.cumsum(whole) - whole))
    share: FloatArray = np.clip(done[:-1] / width, 0.0, 1.0)
    return share
