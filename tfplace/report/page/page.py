"""The page as a whole: of a plan, or of one placement."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template

from tfplace.core.compilation import XLA
from tfplace.core.placement import Placement
from tfplace.core.plan import Plan
from tfplace.formatting import format_seconds
from tfplace.report.colours import device_colours
from tfplace.report.facts import (
    DEVICE_HEADINGS,
    device_facts,
    notes_by_subject,
    said_of_step,
    title,
    verdict,
    wording,
)
from tfplace.report.page.elements import Cell, Section, colour_key, note, table
from tfplace.report.page.layers_view import layers_view
from tfplace.report.page.memory_view import memory_view
from tfplace.report.page.search_view import search_of_placement, search_of_plan
from tfplace.report.page.step_data import step_data
from tfplace.report.page.timeline_view import timeline_view
from tfplace.report.page.transfers_view import transfers_view
from tfplace.report.page.ways import ways_of_placement, ways_of_plan, ways_table
from tfplace.report.peak_memory import peak_memory
from tfplace.report.plan_table import differing, obstacles, plan_title, said_of_chosen
from tfplace.report.plan_table import verdict as plan_verdict
from tfplace.report.simulated_step import simulated_step
from tfplace.search.progress import Progress
from tfplace.version import VERSION

_WITHOUT = "The timeline, memory, layers and transfers need problem.npz, which is not in this directory."


def placement_page(placement: Placement, points: Sequence[Progress] = ()) -> str:
    """The report of `tfplace place`.

    Args:
      placement: the answer; without its problem the page has tables only.
      points: how the search went; see `tfplace.report.search_trail`.
    """
    cost = placement.cost
    ways = Section("plans", "Plans side by side", ways_table(ways_of_placement(placement), cost.objective, cost.source))
    of_placement, of_search = notes_by_subject(placement)
    history = Section("search", "How the search went", search_of_placement(points, placement.bound_s, of_search))
    step, data = _step(placement, placement.predicted.step_s)
    lines = [*said_of_step(placement), *of_placement]
    return _page(title(placement), verdict(placement), lines, [ways, *step, history], data)


def plan_page(plan: Plan) -> str:
    """The report of `tfplace plan`: all rows, and the step of the one that is shown; see `Plan.shown`."""
    row = plan.shown
    objective, source = ("step_time", "simulated") if row is None else (row.cost.objective, row.cost.source)
    ways = Section("plans", "Plans side by side", ways_table(ways_of_plan(plan), objective, source))
    history = Section("search", "How the search went", search_of_plan(plan))
    step: list[Section] = []
    data = "null"
    if row is not None and row.placement is not None:
        step, data = _step(row.placement, row.cost.step_s)
        which = "" if row is plan.chosen else ", the best that tfplace runs itself"
        one = f", one of {row.replicas} replicas" if row.replicas > 1 else ""
        if step:
            step[0] = step[0]._replace(html=note(f"From here on: {row.name}{which}{one}.") + step[0].html)
    lines = [*said_of_chosen(plan), *differing(plan.rows)]
    lines += [f"cannot be taken: {text}" for text in obstacles(plan.rows)]
    return _page(plan_title(plan), plan_verdict(plan), lines, [ways, *step, history], data)


def _step(placement: Placement, step_s: float) -> tuple[list[Section], str]:
    """Sections on one step of a placement, and the data of its timeline."""
    devices = Section("devices", "Devices", _devices(placement))
    step = simulated_step(placement)
    if step is None:
        return [devices._replace(html=devices.html + note(_WITHOUT))], "null"
    data, left_out = step_data(step)
    shown = f"One step, simulated: {format_seconds(step_s)}"
    shown += ", compiled by XLA" if placement.compile == XLA else ""
    return [
        Section("timeline", shown, timeline_view(step, left_out)),
        devices,
        Section("memory", "Memory over the step", memory_view(step.timeline, peak_memory(placement))),
        Section("layers", "Layers", layers_view(placement)),
        Section("transfers", "Transfers between devices", transfers_view(step.timeline)),
    ], data


def _devices(placement: Placement) -> str:
    colours = device_colours(placement.device_names)
    rows = []
    for row, colour in zip(device_facts(placement), colours, strict=True):
        name, *cells = row.cells()
        rows.append((Cell(colour_key(colour) + escape(name)), *(Cell(escape(cell)) for cell in cells)))
    return table(wording(placement.cost.objective).devices, DEVICE_HEADINGS, rows)


def _page(name: str, answer: str, lines: Sequence[str], sections: Sequence[Section], data: str) -> str:
    some = [section for section in sections if section.html]
    links = "".join(f'<li><a href="#{one.key}">{escape(one.title.partition(":")[0])}</a></li>' for one in some)
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return Template(_resource("page.html")).substitute(
        title=escape(name),
        answer=escape(answer),
        said=f'<ul class="said">{listed}</ul>' if listed else "",
        links=links,
        first=some[0].key if some else "",
        sections="\n".join(section.whole() for section in some),
        made=f"Made by tfplace {VERSION}. All times and sizes are simulated unless they are said to be measured.",
        style=_resource("style.css"),
        script=_resource("script.js"),
        data=data,
    )


def _resource(name: str) -> str:
    return resources.files("tfplace.report.page").joinpath(name).read_text(encoding="utf-8")
