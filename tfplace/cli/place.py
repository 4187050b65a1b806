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
from tfplace.core import archive
from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import MEASURED, SIMULATED
from tfplace.core.timeline import Timeline
from tfplace.core.topology import Topology
from tfplace.errors import InputError, UnknownNameError
from tfplace.group.dnn_partitioning import is_workload, load_workload
from tfplace.registry import GROUPERS, PLACERS
from tfplace.report.facts import placement_facts
from tfplace.report.html import placement_page
from tfplace.report.progress import Stages
from tfplace.report.summary import summary_tables
from tfplace.search.budget import Budget
from tfplace.search.grouped import check_grouper
from tfplace.search.init import check_goes_on, check_init

if TYPE_CHECKING:
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
        problem = _formulate(fv, stages, _read(fv, stages, gpus=topology is None), topology, rules)
        placement, measured = _search(fv, stages, problem)
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
    if fv.init:
        check_init(fv.init)
        check_goes_on(fv.placer)
    if fv.grouper:
        check_grouper(fv.grouper, fv.groups)
    elif fv["groups"].present:
        raise InputError(f"--groups={fv.groups} without --grouper", "a grouper", f"One of {', '.join(GROUPERS)}.")
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


def _read(fv: flags.FlagValues, stages: Stages, *, gpus: bool) -> OpGraph | Problem:
    """The model's graph; for a file of a problem, that problem."""
    from tfplace.api import extract

    build = source.find(fv.model)
    params = dict(options.pairs("param", fv.param, "NAME=VALUE"))
    if not archive.is_archive(fv.model) and not is_workload(fv.model):
        stages.stage("building the model")
        load_tensorflow(gpus=gpus)
    built = build(fv.batch, params)
    stages.stage("reading its graph")
    training = False if fv.inference else None
    if archive.is_archive(fv.model) and training is None and not fv.fetch:
        return archive.load(fv.model)
    if is_workload(fv.model):
        return load_workload(fv.model)
    graph = extract(built.source, built.batch, training=training, fetches=tuple(fv.fetch) or None)
    if graph.unknown:
        first = graph.unknown[0]
        stages.note(
            f"{len(graph.unknown)} tensors of unknown size are counted by rule, first of them that of {first.op}: "
            f"{first.rule}"
        )
    return graph


def _formulate(
    fv: flags.FlagValues, stages: Stages, read: OpGraph | Problem, topology: Topology | None, rules: Constraints
) -> Problem:
    if isinstance(read, OpGraph):
        from tfplace.api import formulate

        stages.stage("estimating costs")
        if topology is None:
            load_tensorflow(gpus=True)
        return formulate(read, topology, constraints=rules, profile=fv.profile)
    if topology is not None or fv.profile or rules != Constraints():
        raise InputError(
            f"flags that change the problem in {fv.model!r}",
            "none of --topology, --profile and the rules, which the file holds already",
            "Save the graph alone to place it elsewhere: tfplace.OpGraph.load(path).save(other).",
        )
    return read


def _search(fv: flags.FlagValues, stages: Stages, problem: Problem) -> tuple[Placement, list[Timeline]]:
    """The placement, and the timeline of a measured step of it if it was measured and files are wanted."""
    from tfplace.api import place

    if fv.evaluator != SIMULATED:
        stages.stage(f"starting the {fv.evaluator} evaluator")
    with open_evaluator(fv, problem) as judge:
        stages.stage("searching")
        placement = place(
            problem,
            placer=fv.placer,
            budget=fv.budget,
            seed=fv.seed,
            progress=stages.search,
            evaluator=judge,
            grouper=fv.grouper or None,
            groups=fv.groups,
            init=fv.init,
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
    problem.topology.save(out / "topology.json")
    (out / "report.html").write_text(placement_page(placement))
    names = {
        "placement": "placement.json",
        "trace": "trace.json",
        "topology": "topology.json",
        "report": "report.html",
    }
    if problem.graph.origin is None:
        stages.note("placed.meta is not written: a graph loaded from a file has no TensorFlow form")
    else:
        problem.graph.save(out / "placed.meta", devices=placement.devices)
        names["graph"] = "placed.meta"
    return {what: str(out / name) for what, name in names.items()}
