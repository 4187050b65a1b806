import json
import re
import subprocess
import sys
from statistics import geometric_mean, median

import pytest

from research.claims.claims import CLAIMS
from research.claims.recheck import Judged, judged_tables
from research.claims.verdicts import verdicts_table
from research.suites.suite_runs import SuiteRun
from research.tables.policies_table import policies_tables
from tests.pages import ROOT, rows_of, text, unwrapped
from tfplace.comparison.case_results import goals
from tfplace.comparison.cells import LEARNED, SEARCHES, Case
from tfplace.comparison.placers_table import compare_tables, short_table
from tfplace.comparison.tables import fidelity_tables, speed_table


def test_the_tables_of_fidelity_are_those_of_the_committed_results():
    results = json.loads(text("research/data/fidelity.json"))
    assert fidelity_tables(results) in text("docs/fidelity.md")
    assert speed_table(results) in text("README.md")


def _seeds_apart(rows, placer="auto"):
    """In how many cases every seed is faster than all others' seeds; (case, other) where all of another's are."""
    ahead, behind = 0, []
    for row in rows:
        least, most = row.spread_s(placer)
        others = {name: row.spread_s(name) for name in row.runs if name != placer and row.ran(name)}
        ahead += most < min(spread[0] for spread in others.values())
        behind += [(row.facts.case, name) for name, spread in others.items() if spread[1] < least]
    return ahead, behind


def test_the_tables_of_the_comparison_are_those_of_the_committed_results():
    rows = rows_of("compare")
    assert compare_tables(rows) in text("docs/comparison.md")
    assert short_table(rows) in text("README.md")
    found, readme, page = goals(rows), unwrapped("README.md"), unwrapped("docs/comparison.md")
    best = found.cases - found.behind
    behind = max((factor for _, _, factor in found.beaten), default=1.0) - 1
    assert f"every other placer here in {best} of {found.cases} cases and at most {100 * behind:.1f} % behind" in readme
    assert f"`auto` has the best placement in {best} of {found.cases} cases" in page
    assert f"is ahead by at most {100 * behind:.1f} %" in page
    clearly, others = _seeds_apart(rows)
    assert f"faster than every seed of every other placer in {clearly} cases; the other way round it is in 2" in page
    assert f"in the other {found.cases - clearly - 2} the seeds overlap" in page
    assert others == [(Case(name, "4xP100"), "local_search") for name in ("efficientnet", "vit")]
    faster = 100 * (1 - geometric_mean(found.over_constructive))
    assert f"It is {faster:.0f} % faster than the best list scheduling" in readme
    (con, placeto), (con_tight, tight) = (_over_others(rows, "placeto", kind) for kind in (False, True))
    (con_gdp, gdp), (con_gdp_tight, gdp_tight) = (_over_others(rows, "gdp", kind) for kind in (False, True))
    assert (
        f"({gdp:.2f} and {placeto:.2f} times with ample memory, {gdp_tight:.1f} and {tight:.1f} with tight)" in readme
    )
    assert f"they take {con:.2f} and {con_gdp:.2f} times the step of the best constructive placer" in page
    assert f"and {placeto:.2f} and {gdp:.2f} times `auto`'s" in page
    ample = [row for row in rows if not row.facts.case.tight]
    ahead = [sum(row.median_s(name) < row.best_constructive[1] for row in ample) for name in ("placeto", "gdp")]
    assert f"(faster in {ahead[0]} and {ahead[1]} of {len(ample)} cases)" in page
    dlrm = next(row for row in ample if row.facts.case.graph == "dlrm")
    assert f"`gdp` {dlrm.median_s('gdp') / dlrm.median_s('auto'):.0f} times on `dlrm`" in page
    assert (
        f"at {con_tight:.2f} and {con_gdp_tight:.2f} times the best constructive placer, "
        f"and {tight:.1f} and {gdp_tight:.1f} times `auto`"
    ) in page
    at_once = [run for row in rows for name in ("placeto", "gdp") for run in row.runs[name]]
    assert "all that they place fits" in page and not any(run.over_bytes for run in at_once)


def test_what_is_said_of_seeds_and_of_memory_is_what_was_found():
    rows, page = rows_of("compare"), unwrapped("docs/comparison.md")
    most, mean = {}, {}
    for name in ("auto", "local_search"):
        spreads = [high / low for row in rows for low, high in [row.spread_s(name)]]
        most[name], mean[name] = (100 * (spread - 1) for spread in (max(spreads), geometric_mean(spreads)))
    assert (
        f"seeds of `auto` differ by up to {most['auto']:.0f} %, by {mean['auto']:.0f} % in the mean, those of "
        f"`local_search` by up to {most['local_search']:.0f} %, {mean['local_search']:.0f} % in the mean" in page
    )
    cases = {row.facts.case: row for row in rows}
    paid = {
        (case.graph, case.topology): row.median_s("auto") / cases[Case(case.graph, case.topology)].median_s("auto")
        for case, row in cases.items()
        if case.tight
    }
    some = ("gnmt_2", "gnmt_8", "inception_v3", "rnnlm_2", "nmt_4", "resnet50")
    spread = sorted(100 * (paid.pop((name, "4xP100")) - 1) for name in some)
    assert f"`nmt_4` and `resnet50` ({spread[0]:.0f} to {spread[-1]:.0f} %)" in page
    assert f"`gnmt_8` on eight devices ({100 * (paid.pop(('gnmt_8', '8xP100')) - 1):.0f} %)" in page
    assert f"and `transformer_xl_2` ({paid.pop(('transformer_xl_2', '4xP100')):.1f} times)" in page
    assert max(paid.values()) < 1.08


def test_what_a_minute_was_worth_is_what_was_counted():
    rows, page = rows_of("compare"), unwrapped("docs/comparison.md")
    later, early, ratios = {}, {}, []
    for name in SEARCHES:
        runs = [run for row in rows for run in row.runs[name]]
        first = {run.case: run.evaluations for run in runs if run.seed == 0}
        paces = [run.evaluations / first[run.case] for run in runs if run.seed]
        later[name], ratios = geometric_mean(paces), ratios + paces
        early[name] = geometric_mean([_at_half(run) / run.step_s for run in runs if run.step_s is not None])
    least, most = min(ratios), max(ratios)
    assert f"had {least:.2f} to {most:.2f} times as many placements in the same case" in page
    assert f"in the mean {_ascending(later)}" in page
    assert f"stands on the whole at so many times its own end: {_ascending(early)}" in page


def _ascending(means):
    return ", ".join(f"{mean:.2f} (`{name}`)" for name, mean in sorted(means.items(), key=lambda item: item[1]))


def _at_half(run):
    """The step that a run had found after half of its placements; if none that fits, the first after that."""
    found = [step_s for evaluations, _, step_s, _ in run.trail if evaluations <= run.evaluations / 2]
    return found[-1] if found else run.trail[0][2]


def _over_others(rows, name, tight):
    """A placer's step over that of the best constructive placer, and over `auto`'s, where all its seeds fit."""
    kind = [row for row in rows if row.facts.case.tight is tight]
    mine = [row for row in kind if all(not run.over_bytes for run in row.runs[name])]
    con = [row.median_s(name) / row.best_constructive[1] for row in mine]
    return geometric_mean(con), geometric_mean([row.median_s(name) / row.median_s("auto") for row in mine])


def test_the_tables_of_boxes_are_those_of_the_committed_results():
    rows = rows_of("boxes")
    page = unwrapped("docs/other_box.md")
    assert compare_tables(rows) in text("docs/other_box.md")
    of = {row.facts.case.topology: row.median_s("auto") / row.median_s("single") for row in rows}
    assert f"over four A100 it takes {of['4xA100-NVLink']:.2f} times the step of one" in page
    assert f"over two H100 {of['2xH100-NVLink']:.2f} times" in page


def test_the_tables_of_policies_are_those_of_the_committed_results():
    rows = rows_of("policies")
    tables, page = policies_tables(rows), unwrapped("docs/policies.md")
    assert tables in text("docs/policies.md")
    soon, as_good, cases = re.search(
        r"evaluations in (\d+), and in the end no worse in (\d+) of (\d+) cases", tables
    ).groups()
    assert (
        f"half the evaluations in {soon} of {cases} cases, and is no worse in the end in {as_good} of {cases}" in page
    )

    def wins(placer, other):
        return f"{sum(row.median_s(placer) < row.median_s(other) for row in rows)} of {cases}"

    expert, random, annealing = (wins("post", name) for name in ("expert", "random_search", "annealing"))
    of_post = (
        f"faster than the expert rule in {expert}, than random search in {random}, "
        f"and than annealing, which learns nothing, in {annealing}"
    )
    assert of_post in page
    assert f"`post`, the best of them, is behind annealing in {wins('annealing', 'post')}" in unwrapped("README.md")
    best = min(LEARNED, key=lambda name: geometric_mean(row.median_s(name) / row.median_s("single") for row in rows))
    assert best in ("post", "post_ppo")  # of which the latter is a part
    of_others = (
        f"`seq2seq` is faster than random search in {wins('seq2seq', 'random_search')} cases with so few evaluations, "
        f"`hierarchical` in {wins('hierarchical', 'random_search')}"
    )
    assert of_others in page
    for name in ("gdp_scratch", "placeto_scratch"):
        assert f"`{name}` is faster than random search in {wins(name, 'random_search')}" in page
    assert f"slower than one device in {wins('single', 'placeto_scratch').partition(' ')[0]}:" in page
    learned = [run for row in rows for name in LEARNED for run in row.runs[name]]
    assert len(learned) == (4 * 10 + 2 * 5 + 2 * 3) * int(cases) and all(run.step_s for run in learned)


def _under_another_command(path):
    """How many runs stand below the line of a command that was not for them."""
    flags, found = {}, 0
    for line in map(json.loads, path.read_text().splitlines()):
        if "made_by" in line:
            flags = dict(flag.split("=", 1) for flag in line["made_by"]["command"] if "=" in flag)
        elif "run" in line:
            case = line["run"]["case"]
            of = {"--placers": line["run"]["placer"], "--topologies": case["topology"], "--models": case["graph"]}
            found += any(flag in flags and value not in flags[flag].split(",") for flag, value in of.items())
    return found


def test_runs_stand_below_the_command_that_made_them():
    found = {path.stem: _under_another_command(path) for path in (ROOT / "research" / "data").glob("*.jsonl")}
    assert len(found) > 10 and {name for name, others in found.items() if others} == {"compare"}
    assert f"so that {found['compare']} runs stand below the command of others" in unwrapped("docs/comparison.md")


BY_BENCHMARKS = {
    "coarse_groups": "docs/pretrained.md",
    "cost_errors": "docs/fidelity.md",
    "draws": "docs/comparison.md",
    "gdp_together": "docs/reproduction.md",
    "graph_files": "docs/models.md",
    "group_lessons": "docs/pretrained.md",
    "learning_longer": "docs/reproduction.md",
    "move_choice": "docs/pretrained.md",
    "more_seeds": "docs/comparison.md",
    "moves": "docs/comparison.md",
    "same_seed": "docs/reproduction.md",
    "placeto_constants": "docs/policies.md",
}


def test_what_errors_leave_of_a_gain_is_what_was_simulated():
    found, page = json.loads(text("research/data/cost_errors.json")), unwrapped("docs/fidelity.md")
    steps = {
        errors: {name: [median(placed[name]) for placed in graphs.values()] for name in next(iter(graphs.values()))}
        for errors, graphs in found.items()
    }
    means = {errors: {name: geometric_mean(each) for name, each in of.items()} for errors, of in steps.items()}
    gain = {errors: 1 - of["auto"] for errors, of in means.items()}
    whole = gain.pop("no errors")
    kind, op, links, order = (
        100 * gain[name] / whole for name in ("each type of op", "each op", "all links", "order of ops")
    )
    assert f"of the {100 * whole:.1f} % by which `auto`'s step is shorter" in page
    assert f"{min(kind, op):.0f} to {max(kind, op):.0f} % where op times are off" in page
    assert f"{links:.0f} % where links are, {order:.0f} % in another order" in page
    assert all(min(of, key=of.get) == "auto" for of in means.values())
    assert max(max(of["auto"]) for of in steps.values()) < 1
    for name in ("expert", "heft", "metis"):
        assert all(abs(of[name] / means["no errors"][name] - 1) < 0.02 for of in means.values())
    searched = [of[name] for of in means.values() for name in ("placeto", "local_search", "auto")]
    assert max(searched) < 0.85 * min(of[name] for of in means.values() for name in ("expert", "heft", "metis"))


@pytest.mark.parametrize("benchmark", BY_BENCHMARKS)
def test_tables_of_benchmarks_are_those_of_their_committed_results(benchmark, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text(BY_BENCHMARKS[benchmark]))
    command = [sys.executable, str(ROOT / "research" / "benchmarks" / f"{benchmark}.py"), f"--page={page}"]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    assert page.read_text() == text(BY_BENCHMARKS[benchmark])


@pytest.mark.parametrize(
    "name",
    sorted(
        {*re.findall(r"<!-- tables: (\S+) -->\n\n", text("docs/reproduction.md"))}
        - {"gdp-together", "learning-longer", "same-seed", "verdicts"}
    ),
)
def test_what_is_said_of_claims_is_what_was_found(name):
    claim = CLAIMS[name]
    rows = SuiteRun(claim.suite, ROOT / "no graphs", ROOT / claim.suite.out, lambda: None).rows()
    assert claim.tables(rows) in text("docs/reproduction.md")


@pytest.mark.parametrize("page", ["README.md", "docs/reproduction.md"])
def test_which_claims_hold_is_what_was_found(page):
    assert f"<!-- tables: verdicts -->\n\n{verdicts_table(ROOT)}\n\n<!-- end -->" in text(page)


def test_what_grappler_says_of_claims_is_what_was_found():
    for name, found in json.loads(text("research/data/recheck.json")).items():
        claim = CLAIMS[name]
        rows = SuiteRun(claim.suite, ROOT / "no graphs", ROOT / claim.suite.out, lambda: None).rows()
        tables = judged_tables([Judged(**one) for one in found], claim.methods, rows)
        assert f"<!-- tables: {name}, rechecked -->\n\n{tables}\n\n<!-- end -->" in text("docs/reproduction.md")


def test_how_many_steps_were_found_again_is_what_the_tables_say():
    page = unwrapped("docs/reproduction.md")
    pairs = [tuple(map(int, pair)) for pair in re.findall(r"(\d+) of (\d+) steps are, to the last bit", page)]
    same, steps = map(sum, zip(*pairs, strict=True))
    assert same == steps
    assert f"All {steps:,} steps that `research/recheck_claims.py` found again" in page
    assert "are the same to the last bit." in page and "differs by" not in page


def test_what_compiled_draws_gain_is_what_was_measured():
    found = json.loads(text("research/data/draws.json"))
    times = [median(one["plain"]) / median(one["compiled"]) for one in found.values()]
    assert "5 to 10 times as fast as in plain Python" in unwrapped("CHANGELOG.md")
    assert 5 < min(times) <= max(times) < 10


def test_what_controllers_gain_is_what_was_measured():
    found = json.loads(text("research/data/controllers.json"))
    gain = {
        name: f"{median(kinds['in step']) / median(kinds['alone']):.1f} times as many"
        for name, kinds in found["placements_per_second"].items()
    }
    said = unwrapped("docs/policies.md")
    assert f"{gain['seq2seq']} placements a second with `seq2seq`, and from {gain['hierarchical']} with" in said
    assert found["controllers"] == found["processors"] == 2 and "Two controllers on two cores" in said
