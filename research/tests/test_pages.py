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
from tfplace.comparison.placers_table import compare_tables, short_table
from tfplace.comparison.tables import agreement_table, fidelity_tables, speed_table


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


TABLES = {
    "README.md": {
        "compare, in short": lambda: short_table(rows_of("compare")),
        "fidelity": lambda: speed_table(data("fidelity")),
        "verdicts": lambda: verdicts_table(ROOT),
    },
    "docs/comparison.md": {
        "compare": lambda: compare_tables(rows_of("compare")),
        "draws": lambda: benchmark("draws"),
        "growth": lambda: growth.show(data("growth")["rows"]),
        "moves": lambda: benchmark("moves"),
        "split-placers": lambda: split_placers.text(lines_of("split_placers")),
    },
    "docs/fidelity.md": {
        "cost-errors": lambda: benchmark("cost_errors"),
        "fidelity": lambda: fidelity_tables(data("fidelity")),
        "fidelity-compiled": lambda: agreement_table(data("fidelity_compiled")),
        "memory": lambda: benchmark("memory"),
        "never-slower": lambda: step_against_plain(data("never_slower")),
        "op-costs": lambda: benchmark("op_costs"),
        "pipeline-orders": lambda: benchmark("pipeline_orders"),
        "plan-regret": lambda: benchmark("plan_regret"),
        "slices-running": lambda: split_steps(data("slices_running")),
    },
    "docs/compiling.md": {"compile-time": lambda: benchmark("compile_time")},
    "docs/does_not_fit.md": {"tight-plans": lambda: benchmark("tight_plans")},
    "docs/fused_costs.md": {"compiled-costs": lambda: benchmark("compiled_costs")},
    "docs/large_boxes.md": {"scaling": lambda: benchmark("scaling")},
    "docs/models.md": {"graph-files": lambda: benchmark("graph_files")},
    "docs/plan.md": {"error-bands": bands_table, "plans": lambda: benchmark("plans")},
    "docs/objectives.md": {
        "steps": lambda: workloads.step_table(data("dnn_partitioning/results")),
        "throughput": lambda: workloads.throughput_table(data("dnn_partitioning/results")),
    },
    "docs/other_box.md": {"compare": lambda: compare_tables(rows_of("boxes"))},
    "docs/policies.md": {"policies": lambda: policies_tables(rows_of("policies"))},
    "docs/pretrained.md": {
        "ablation": lambda: ablation_tables(rows_of("ablation")),
        "coarse-groups": lambda: benchmark("coarse_groups"),
        "group-lessons": lambda: benchmark("group_lessons"),
        "move-choice": lambda: benchmark("move_choice"),
        "transfer": lambda: transfer_tables(rows_of("transfer")),
        "unseen": lambda: unseen_tables(rows_of("unseen")),
    },
    "docs/rematerialization.md": {
        "rematerialization": lambda: benchmark("rematerialization"),
        "rematerialization-optimum": lambda: benchmark("rematerialization_optimum"),
    },
    "docs/reproduction.md": {
        "gdp-together": lambda: benchmark("gdp_together"),
        "same-seed": lambda: benchmark("same_seed"),
        "verdicts": lambda: verdicts_table(ROOT),
    },
}
BY_COMMAND = {
    "learning_longer": ("docs/reproduction.md", ["learning-longer"]),
    "more_seeds": ("docs/comparison.md", ["more-seeds", "more-seeds-again", "more-seeds-ahead", "more-seeds-graphs"]),
    "placeto_constants": ("docs/policies.md", ["placeto-constants"]),
}
"""Programs whose flags allow no other in the same process: the page, and its tables."""


def marked(page):
    return dict(re.findall(r"<!-- tables: (.+?) -->\n+(.*?)\n+<!-- end", text(page), re.DOTALL))


def tables_of(page):
    found = dict(TABLES[page])
    if page == "docs/reproduction.md":
        for name in marked(page).keys() - {*found, "learning-longer"}:
            claim, _, again = name.partition(", ")
            found[name] = (
                (lambda c=claim: rechecked(c)) if again else lambda c=claim: CLAIMS[c].tables(claim_rows(CLAIMS[c]))
            )
    return found


@pytest.mark.parametrize("page", TABLES)
def test_what_is_generated_anew_is_what_the_page_has(page):
    marks, tables = marked(page), tables_of(page)
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
    pages = [path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")] if "<!-- tables:" in path.read_text()]
    assert sorted(path.relative_to(ROOT).as_posix() for path in pages) == sorted(TABLES)


@pytest.mark.parametrize("name", ["grouping", "grouping_long"])
def test_what_is_generated_anew_of_groupers_is_what_the_page_has(name, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text("docs/grouping.md"))
    grouping.put_tables(page, data(name), name)
    assert page.read_text() == text("docs/grouping.md")
