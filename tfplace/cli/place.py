"""`tfplace place`: build, extract, search, report, write."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from absl import flags
from rich.console import Console

from tfplace.cli import options, source
from tfplace.cli.console import say
from tfplace.cli.evaluator import check_evaluator, open_evaluator
from tfplace.cli.quiet import load_tensorflow
from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.stepcost import MEASURED, SIMULATED
from tfplace.core.timeline import Timeline
from tfplace.core.topology import Topology
from tfplace.errors import InputError, UnknownNameError
from tfplace.registry import PLACERS
from tfplace.report.facts import placement_facts
from tfplace.report.html import placement_page
from tfplace.report.progress import Stages
from tfplace.report.summary import summary_tables
from tfplace.search.budget import Budget

if TYPE_CHECKING:
    from tfplace.core.problem import Problem
    from tfplace.measure.measured import MeasuredEvaluator


def place_command(argv: Sequence[str]) -> None:
    """Runs `tfplace place` with these flags.

    Raises:
      InputError, InfeasibleError: see the exit codes in docs/cli.md.
    """
    if {"--help", "-h", "--helpfull", "--helpshort"} & set(argv):
        say(options.usage())
        return
    fv = options.parse(argv)
    rules, topology, out = _check(fv)
    # Models print what they like while they are built; stdout is for the result.
    with Stages(fv.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        graph = _read(fv, stages, gpus=topology is None)
        placement, measured = _search(fv, stages, graph, topology, rules)
        files = _write(stages, placement, measured, out) if out is not None else {}
    if fv.json:
        say(json.dumps(placement_facts(placement) | {"files": files}, indent=1) + "\n")
    else:
        console = Console()
        if console.is_terminal:
            console.print(summary_tables(placement))
        else:
            say(placement.summary() + "\n")
        say("".join(f"{what:<10} {path}\n" for what, path in files.items()))


def _check(fv: flags.FlagValues) -> tuple[Constraints, Topology | None, Path | None]:
    """Everything that can be wrong without building the model, so that it is said at once."""
    rules = options.constraints(fv)
    topology = Topology.load(fv.topology) if fv.topology else None
    Budget.parse(fv.budget)
    check_evaluator(fv, topology)
    if fv.placer not in PLACERS:
        raise UnknownNameError("placer", fv.placer, PLACERS)
    for name in (*rules.max_memory, *rules.pin.values(), *(d for ds in rules.forbid.values() for d in ds)):
        if topology is not None:
            topology.match(name)
    out = Path(fv.out) if fv.out else None
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--out={fv.out} ({error.strerror})", "a directory that exists or can be made") from error
    return rules, topology, out


def _read(fv: flags.FlagValues, stages: Stages, *, gpus: bool) -> OpGraph:
    from tfplace.api import extract

    build = source.find(fv.model)
    params = dict(options.pairs("param", fv.param, "NAME=VALUE"))
    stages.stage("building the model")
    load_tensorflow(gpus=gpus)
    built = build(fv.batch, params)
    stages.stage("reading its graph")
    training = False if fv.inference else None
    graph = extract(built.source, built.batch, training=training, fetches=tuple(fv.fetch) or None)
    if graph.unknown:
        first = graph.unknown[0]
        stages.note(
            f"{len(graph.unknown)} tensors of unknown size are counted by rule, first of them that of {first.op}: "
            f"{first.rule}"
        )
    return graph


def _search(
    fv: flags.FlagValues, stages: Stages, graph: OpGraph, topology: Topology | None, rules: Constraints
) -> tuple[Placement, list[Timeline]]:
    """The placement, and the timeline of a measured step of it if it was measured and files are wanted."""
    from tfplace.api import formulate, place

    stages.stage("estimating costs")
    problem: Problem = formulate(graph, topology, constraints=rules, profile=fv.profile)
    if fv.evaluator != SIMULATED:
        stages.stage(f"starting the {fv.evaluator} evaluator")
    with open_evaluator(fv, problem) as judge:
        stages.stage("searching")
        placement = place(
            problem, placer=fv.placer, budget=fv.budget, seed=fv.seed, progress=stages.search, evaluator=judge
        )
        if judge.source != MEASURED:
            return placement, []
        measured = cast("MeasuredEvaluator", judge)
        if not fv.quiet:
            stages.note(f"measured: {measured.agreement}")
        if not fv.out:
            return placement, []
        stages.stage("tracing a step")
        return placement, [measured.timeline(problem.gather(placement.op_device))]


def _write(stages: Stages, placement: Placement, measured: Sequence[Timeline], out: Path) -> dict[str, str]:
    """Writes everything there is to keep; returns what is where."""
    problem = placement.problem
    assert problem is not None  # placed here, so it is bound
    stages.stage("writing")
    placement.save(out / "placement.json")
    placement.timeline().save(str(out / "trace.json"), *measured)
    problem.graph.save(str(out / "placed.meta"), devices=placement.devices)
    problem.topology.save(out / "topology.json")
    (out / "report.html").write_text(placement_page(placement))
    names = {
        "placement": "placement.json",
        "trace": "trace.json",
        "graph": "placed.meta",
        "topology": "topology.json",
        "report": "report.html",
    }
    return {what: str(out / name) for what, name in names.items()}
