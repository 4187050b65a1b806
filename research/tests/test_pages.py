"""What pages have between their marks is what the committed results give when it is generated anew."""

import importlib
import json
import re
import subprocess
import sys

import pytest

from research import split_placers
from research.benchmarks import grouping, growth
from research.benchmarks.dnn_partitioning import run as workloads
from research.benchmarks.never_slower.page import text as step_against_plain
from research.benchmarks.slices_running.page import text as split_steps
from research.claims.claims import CLAIMS
from research.claims.recheck import Judged, judged_tables
from research.claims.verdicts import verdicts_table
from research.fidelity.bands import bands_table
from research.suites.suite_runs import SuiteRun
from research.tables.ablation_table import ablation_tables
from research.tables.policies_table import policies_tables
from research.tables.transfer_table import transfer_tables
from research.tables.unseen_table import unseen_tables
from tests.pages import ROOT, rows_of, text
from tfplace.comparison.placers_table import compare_tables
from tfplace.comparison.tables import agreement_table, fidelity_tables


def data(name):
    return json.loads(text(f"research/data/{name}.json"))


def lines_of(name):
    return [json.loads(line) for line in text(f"research/data/{name}.jsonl").splitlines()]


def claim_rows(claim):
    return SuiteRun(claim.suite, ROOT / "no graphs", ROOT / claim.suite.out, lambda: None).rows()


def benchmark(name):
    return importlib.import_module(f"research.benchmarks.{name}").text(data(name))


def rechecked(name):
    claim = CLAIMS[name]
    return judged_tables([Judged(**one) for one in data("recheck")[name]], claim.methods, claim_rows(claim))


def claims(*names):
    """The tables of claims, and those of the second judgments that there are."""
    found = {name: lambda name=name: CLAIMS[name].tables(claim_rows(CLAIMS[name])) for name in names}
    again = [name for name in names if name in data("recheck")]
    return found | {f"{name}, rechecked": lambda name=name: rechecked(name) for name in again}


TABLES = {
    "docs/concepts/plans.md": {"error-bands": bands_table},
    "docs/reference/models.md": {"graph-files": lambda: benchmark("graph_files")},
    "docs/research/boxes.md": {"compare": lambda: compare_tables(rows_of("boxes"))},
    "docs/research/claims.md": {"verdicts": lambda: verdicts_table(ROOT)},
    "docs/research/claims_baechi.md": claims("baechi"),
    "docs/research/claims_gdp.md": claims("gdp"),
    "docs/research/claims_hierarchical.md": claims("hierarchical", "hierarchical-two"),
    "docs/research/claims_hold_out.md": {**claims("gdp-hold-out"), "gdp-together": lambda: benchmark("gdp_together")},
    "docs/research/claims_placeto.md": {
        **claims("placeto-samples"),
        "placeto-unseen, rechecked": lambda: rechecked("placeto-unseen"),
    },
    "docs/research/claims_post.md": claims("post"),
    "docs/research/claims_seq2seq.md": claims("colocrl", "colocrl-k80"),
    "docs/research/comparison.md": {"compare": lambda: compare_tables(rows_of("compare"))},
    "docs/research/comparison_seeds.md": {},
    "docs/research/compiled_steps.md": {
        "compile-time": lambda: benchmark("compile_time"),
        "compiled-costs": lambda: benchmark("compiled_costs"),
        "fidelity-compiled": lambda: agreement_table(data("fidelity_compiled")),
    },
    "docs/research/cost_errors.md": {
        "cost-errors": lambda: benchmark("cost_errors"),
        "op-costs": lambda: benchmark("op_costs"),
    },
    "docs/research/fidelity.md": {"fidelity": lambda: fidelity_tables(data("fidelity"))},
    "docs/research/growth.md": {"growth": lambda: growth.show(data("growth")["rows"])},
    "docs/research/local_search.md": {"draws": lambda: benchmark("draws"), "moves": lambda: benchmark("moves")},
    "docs/research/many_workers.md": {
        "many-workers": lambda: benchmark("many_workers"),
        "workers-growth": lambda: benchmark("workers_growth"),
    },
    "docs/research/memory.md": {"memory": lambda: benchmark("memory")},
    "docs/research/one_device.md": {"never-slower": lambda: step_against_plain(data("never_slower"))},
    "docs/research/plan_regret.md": {"plan-regret": lambda: benchmark("plan_regret")},
    "docs/research/plans.md": {"plans": lambda: benchmark("plans")},
    "docs/research/policies.md": {"policies": lambda: policies_tables(rows_of("policies"))},
    "docs/research/pretrained.md": {
        "transfer": lambda: transfer_tables(rows_of("transfer")),
        "unseen": lambda: unseen_tables(rows_of("unseen")),
    },
    "docs/research/pretrained_parts.md": {
        "ablation": lambda: ablation_tables(rows_of("ablation")),
        "coarse-groups": lambda: benchmark("coarse_groups"),
        "group-lessons": lambda: benchmark("group_lessons"),
        "move-choice": lambda: benchmark("move_choice"),
    },
    "docs/research/rematerialization.md": {
        "rematerialization": lambda: benchmark("rematerialization"),
        "rematerialization-optimum": lambda: benchmark("rematerialization_optimum"),
    },
    "docs/research/repeatable.md": {"same-seed": lambda: benchmark("same_seed")},
    "docs/research/planning_time.md": {"planning-time": lambda: benchmark("planning_time")},
    "docs/research/scaling.md": {"scaling": lambda: benchmark("scaling")},
    "docs/research/split_steps.md": {
        "pipeline-orders": lambda: benchmark("pipeline_orders"),
        "slices-running": lambda: split_steps(data("slices_running")),
        "split-placers": lambda: split_placers.text(lines_of("split_placers")),
    },
    "docs/research/throughput.md": {
        "steps": lambda: workloads.step_table(data("dnn_partitioning/results")),
        "throughput": lambda: workloads.throughput_table(data("dnn_partitioning/results")),
    },
    "docs/research/tight_memory.md": {"tight-plans": lambda: benchmark("tight_plans")},
}
BY_COMMAND = {
    "learning_longer": ("docs/research/claims_gdp.md", ["learning-longer"]),
    "more_seeds": (
        "docs/research/comparison_seeds.md",
        ["more-seeds", "more-seeds-again", "more-seeds-ahead", "more-seeds-graphs"],
    ),
    "placeto_constants": ("docs/research/policies.md", ["placeto-constants"]),
}
"""Programs whose flags allow no other in the same process: the page, and its tables."""


def marked(page):
    return dict(re.findall(r"<!-- tables: (.+?) -->\n+(.*?)\n+<!-- end", text(page), re.DOTALL))


@pytest.mark.parametrize("page", TABLES)
def test_what_is_generated_anew_is_what_the_page_has(page):
    marks, tables = marked(page), TABLES[page]
    by_command = {name for at, names in BY_COMMAND.values() if at == page for name in names}
    assert marks.keys() == {*tables, *by_command}
    assert {name: generate() for name, generate in tables.items()} == {name: marks[name] for name in tables}


@pytest.mark.parametrize("name", BY_COMMAND)
def test_what_a_command_generates_is_what_the_page_has(name, tmp_path):
    page, _ = BY_COMMAND[name]
    copy = tmp_path / "page.md"
    copy.write_text(text(page))
    command = [sys.executable, "-m", f"research.benchmarks.{name}", f"--page={copy}"]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    assert copy.read_text() == text(page)


def test_every_page_with_marks_is_here():
    pages = [path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if "<!-- tables:" in path.read_text()]
    assert sorted(path.relative_to(ROOT).as_posix() for path in pages) == sorted(TABLES)


@pytest.mark.parametrize("name", ["grouping", "grouping_long"])
def test_what_is_generated_anew_of_groupers_is_what_the_page_has(name, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text("docs/research/grouping.md"))
    grouping.put_tables(page, data(name), name)
    assert page.read_text() == text("docs/research/grouping.md")
