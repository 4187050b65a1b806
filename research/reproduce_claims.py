"""Runs what a paper claims, and says how far it holds here.

    python -m research.reproduce_claims                                   # the claims, and whether they hold
    python -m research.reproduce_claims --page=docs/research/claims.md    # whether they hold, on a page
    python -m research.reproduce_claims --claim=post --quick  # small models, in minutes, to see that it works
    python -m research.reproduce_claims --claim=post                      # all of it; hours
    python -m research.reproduce_claims --claim=post --page=docs/research/claims_post.md

All step times are simulated. Results are written cell by cell, those of whole runs to benchmarks/; the same command
goes on where it was stopped.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import app, flags

from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script
from tfplace.comparison.tables import Page
from tfplace.errors import InputError
from tfplace.files import check_writable
from tfplace.report.progress import Stages

ROOT = Path(__file__).resolve().parent.parent

if TYPE_CHECKING:
    from research.claims.base import Claim
    from tfplace.comparison.case_results import CaseResults

TARNAWSKI = "tarnawski"
"""The claim whose workloads have a benchmark of their own."""

_CLAIM = flags.DEFINE_string("claim", None, "Which one; without it, all are listed, and whether they hold.")
_QUICK = flags.DEFINE_bool("quick", False, "Small models and budgets: whether it works, not what comes out.")
_JOBS = flags.DEFINE_integer("jobs", 2, "Cells at a time, each on a processor of its own.", 1)
_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Where extracted graphs are kept.")
_OUT = flags.DEFINE_string("out", None, "The results; by default where the claim's are kept.")
_SEEDS = flags.DEFINE_integer("seeds", None, "For placers with random choices; by default the claim's.", 1)
_PAGE = flags.DEFINE_string("page", None, "A page whose tables of this claim, or of all claims, are rewritten.")


def main(argv: list[str]) -> None:
    """Runs what is missing of a claim, and prints what came out."""
    with script(argv):
        _reproduce()


def _reproduce() -> None:
    from research.claims.claims import CLAIMS
    from research.suites.suite_runs import SuiteRun

    name = _CLAIM.value
    if name == TARNAWSKI:
        raise SystemExit(subprocess.run(_partitioning(), cwd=ROOT, check=False).returncode)
    if name is None:
        _show_all(_list(CLAIMS))
        return
    if name not in CLAIMS:
        print(_list(CLAIMS), file=sys.stderr)
        raise SystemExit(f"There is no claim {name!r}; see above.")
    claim = CLAIMS[name]
    if _QUICK.value and _PAGE.value:
        raise SystemExit("--quick with --page; what a quick run finds is for no page.")
    suite = claim.run_of(quick=_QUICK.value)
    if _SEEDS.value:
        suite = suite.with_seeds(_SEEDS.value)
    loads = functools.partial(load_tensorflow, gpus=False)
    page = None if _PAGE.value is None else Page(_PAGE.value, name)
    run = SuiteRun(suite, Path(_GRAPHS.value), Path(_OUT.value or ROOT / suite.out), loads)
    with Stages(quiet=False) as stages:
        failed = run.run(_JOBS.value, stage=stages.stage, progress=stages.part)
    for task, error in failed:  # first of all, as what follows may fail for what is missing
        print(f"{task}: {error!r}", file=sys.stderr)
    if rows := run.rows():
        _show(claim, rows, page)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed, see above; the same command runs them again.")


def _list(claims: Mapping[str, Claim]) -> str:
    from research.claims.tarnawski import PAPER

    lines = [f"{name:<16} {claim.paper}: {claim.says}" for name, claim in claims.items()]
    return "\n".join([*lines, f"{TARNAWSKI:<16} {PAPER}: optimal pipelines, on their own workloads."])


def _show_all(listed: str) -> None:
    """The claims, and from the committed results whether they hold."""
    from research.claims.verdicts import verdicts_table

    page = None if _PAGE.value is None else Page(_PAGE.value, "verdicts")
    text = verdicts_table(ROOT)
    print(f"{listed}\n\n{text}")
    if page is not None:
        page.write(text)


def _show(claim: Claim, rows: Sequence[CaseResults], page: Page | None) -> None:
    text = claim.tables(rows)
    print(f"{claim.paper}: {claim.says}\n\n{text}")
    if _QUICK.value:
        print("\nQuick: small models and budgets, of which nothing follows for the claim.")
    if page is not None:
        page.write(text)


def _partitioning() -> list[str]:
    """The command of the benchmark.

    Raises:
      InputError: a flag that means nothing to it.
    """
    given = [f"--{name}" for name in ("jobs", "graphs", "page") if flags.FLAGS[name].present]
    if given:
        raise InputError(
            f"--claim={TARNAWSKI} with {' and '.join(given)}",
            "only --quick, --seeds and --out beside it",
            "research/benchmarks/dnn_partitioning/run.py has flags of its own, such as --table for its page.",
        )
    command = [sys.executable, "research/benchmarks/dnn_partitioning/run.py", "--objective=throughput"]
    out = _OUT.value or (ROOT / "out" / "quick_tarnawski.json" if _QUICK.value else None)
    if out is not None:
        check_writable(out)
        command.append(f"--results={Path(out).resolve()}")  # from ROOT, a path may mean another file
    if seeds := _SEEDS.value or (1 if _QUICK.value else None):
        command.append(f"--seeds={seeds}")
    if not _QUICK.value:
        return [*command, "--budget=60s"]
    small = ["--budget=5s", "--workloads=thr-layer-bert24-inf"]
    return [*command, *small, "--placers=contiguous,load_search,exact,auto"]


if __name__ == "__main__":
    app.run(main)
