"""What pages say of `research/data/more_seeds.jsonl`."""

import re
from itertools import combinations
from math import comb
from statistics import geometric_mean, median

from tests.pages import rows_of, text, unwrapped
from tfplace.comparison.case_results import goals
from tfplace.comparison.cells import Case
from tfplace.search.budget import Budget


def test_what_further_seeds_say_is_what_was_found():
    page = unwrapped("docs/comparison.md")
    _, _, table = text("docs/comparison.md").partition("<!-- tables: more-seeds -->")
    table = table.partition("<!-- end")[0]
    lines = re.findall(r"\| ([\d.]+) +\| ([\d.]+) +\| (\d+) of (\d+) pairs +\|", table)
    cases = goals(rows_of("compare")).behind
    over = [float(further) for _, further, _, _ in lines]
    behind = [ratio for ratio in over if ratio >= 1]
    pairs = [(int(ahead), int(of)) for _, _, ahead, of in lines]
    assert len(lines) == cases and {of for _, of in pairs} == {25}
    ahead, most = cases - len(behind), f"{100 * (max(behind) - 1):.1f} %"
    assert len(behind) == 4
    assert f"`auto` is ahead in {ahead} of the {cases}, and at most {most} behind in the other four" in page
    assert f"have `auto` ahead in {ahead} of the {cases} cases, those two among them" in page
    assert f"it takes {geometric_mean(over):.3f} times as long" in page
    assert f"in {sum(won for won, _ in pairs)} of {sum(of for _, of in pairs)}" in page
    assert [won for won, _ in pairs if won <= 2 or won >= 23] == [25]
    ranks = [
        sum(r - i for i, r in enumerate(mine)) for mine in combinations(range(10), 5)
    ]  # pairs won, all alike likely
    assert "in 2 pairs of 25 or fewer once in thirty times" in page
    assert 30 < len(ranks) / sum(won <= 2 or won >= 23 for won in ranks) < 33
    runs = [run for row in rows_of("more_seeds") for name in row.runs for run in row.runs[name]]
    ahead_first = goals(rows_of("compare")).cases - cases
    assert len(runs) == 10 * cases + 2 * ahead_first + 8 * 17 and all(
        run.stands(budget=Budget.parse("60s")) for run in runs
    )


def test_what_a_further_seed_says_where_auto_is_ahead_is_what_was_found():
    page, first = unwrapped("docs/comparison.md"), {row.facts.case: row for row in rows_of("compare")}
    over, before, later = {}, {}, {}
    for row in rows_of("more_seeds"):
        case, auto = row.facts.case, row.found_s("auto")
        other, nearest_s = first[case].best_of(set(first[case].runs) - {"auto"})
        if first[case].median_s("auto") < nearest_s:
            assert set(row.runs) == {"auto", other}
            over[case] = auto[0] / row.found_s(other)[0]
            before[case] = first[case].median_s("auto") / nearest_s
            later[case] = auto[1:], row.found_s(other)[1:]
    assert f"Over all {len(over)} `auto` takes {geometric_mean(over.values()):.3f} times as long" in page
    assert f"{geometric_mean(before.values()):.3f} by the first seeds" in page
    behind = {case: 100 * (ratio - 1) for case, ratio in over.items() if ratio > 1}
    ahead = len(over) - len(behind)
    chance = sum(comb(len(over), won) for won in range(ahead, len(over) + 1)) / 2 ** len(over)
    assert f"is ahead in {ahead}; if both were alike" in page
    assert f"once in some {round(1 / chance, -2):,.0f} times" in page
    clearly = sum(percent >= 2 for percent in behind.values())
    assert f"behind in {len(behind)} of these pairs, in {len(behind) - clearly} of them by less than 2 %" in page

    later = {case: steps for case, steps in later.items() if steps[0]}
    assert later.keys() == behind.keys() and all(len(mine) == len(its) == 4 for mine, its in later.values())
    over = {case: median(mine) / median(its) for case, (mine, its) in later.items()}
    won = {case: sum(a < b for a in mine for b in its) for case, (mine, its) in later.items()}
    slower = [case for case, ratio in over.items() if ratio > 1]
    assert len(slower) == 7 and f"is ahead in {len(over) - 7} of the {len(over)}, and at most " in page
    assert f"{100 * (max(over.values()) - 1):.1f} % behind in the other seven" in page
    assert f"over all {len(over)} it takes {geometric_mean(over.values()):.3f} times as long" in page
    assert f"faster one in {sum(won.values())} of {16 * len(won)} pairs" in page
    assert [case.graph for case in slower if won[case] <= 2] == ["vit"]
    ranks = [sum(r - i for i, r in enumerate(mine)) for mine in combinations(range(8), 4)]
    assert 8 < len(ranks) / sum(pairs <= 2 or pairs >= 14 for pairs in ranks) < 9
    assert "in 2 pairs of 16 or fewer once in nine times" in page


def test_what_all_seeds_say_of_auto_is_what_was_found():
    page, readme = unwrapped("docs/comparison.md"), unwrapped("README.md")
    more = {row.facts.case: row for row in rows_of("more_seeds")}
    over, graphs = {}, {}
    for row in rows_of("compare"):
        case = row.facts.case
        found = {name: row.found_s(name) + more[case].found_s(name) for name in row.runs}
        for name in found.keys() - {"auto"}:
            ratio = median(found["auto"]) / median(found[name])
            over[case, name] = ratio
            graphs.setdefault((case.graph, name), []).append(ratio)  # nothing where what it found does not fit
    behind = {key: 100 * (ratio - 1) for key, ratio in over.items() if ratio > 1}
    least, most, cases = min(behind.values()), max(behind.values()), len(more)
    assert {name for _, name in behind} == {"local_search"}
    assert f"ahead in {len(behind)} of the {cases} cases, by {least:.1f} to {most:.1f} %, always `local_search`" in page
    ahead = f"ahead in {cases - len(behind)} of {cases} cases and at most {most:.1f} % behind in the others"
    assert ahead in page and f"in {cases - len(behind)} and at most {most:.1f} %)" in readme

    means = {key: geometric_mean(ratios) if min(ratios) else 0.0 for key, ratios in graphs.items()}
    slower = {key: 100 * (mean - 1) for key, mean in means.items() if mean > 1}
    low, high, names = min(slower.values()), max(slower.values()), {graph for graph, _ in means}
    assert slower.keys() == {(graph, "local_search") for graph in ("vit", "wavenet_4x36", "bert_large")}
    assert (
        f"ahead on three of {len(names)} graphs, `vit`, `wavenet_4x36` and `bert_large`, by {low:.1f} to {high:.1f}"
        in page
    )
    assert f"in {len(names) - 3} of {len(names)} graphs and at most {high:.1f} % behind on the others" in page
    _, _, table = text("docs/comparison.md").partition("<!-- tables: more-seeds-graphs -->")
    shown = re.findall(
        r"\| (\w+) +\| \d+ +\| \w+ +\| [\d.]+ +\| (\w+) +\| ([\d.]+) +\|", table.partition("<!-- end")[0]
    )
    assert len(shown) == len(names)
    for graph, name, mean in shown:
        assert mean == f"{means[graph, name]:.4f}" == f"{max(m for (g, _), m in means.items() if g == graph):.4f}"

    nasnet = Case("nasnet", "2xP100")
    [row] = [row for row in rows_of("compare") if row.facts.case == nasnet]
    auto, placeto = (row.found_s(name) + more[nasnet].found_s(name) for name in ("auto", "placeto"))
    assert max(auto) == auto[3] and f"{100 * (auto[3] / placeto[3] - 1):.1f} % on `nasnet` with two devices" in page
    (low, high), (others_low, others_high) = ((min(found), max(found)) for found in (auto, placeto))
    assert (
        f"`auto` take {low:.2f} to {high:.2f} s there, those of `placeto` {others_low:.2f} to {others_high:.2f} s"
        in page
    )
    assert f"is the slowest of {'eight' if len(auto) == 8 else len(auto)}" in page
