"""What the pages say of policies that were trained beforehand is what was found, and what their cards say."""

import json
import re
from statistics import geometric_mean, median

from research.tables.ablation_table import ablation_tables
from research.tables.transfer_table import transfer_tables
from research.tables.unseen_table import ALONE, ITSELF, TRAINED, curves, over_optimised, unseen_tables
from tests.pages import rows_of, text, unwrapped
from tfplace.comparison.cells import CONSTRUCTIVE
from tfplace.learned.training.pretrained import Pretrained


def test_what_grappler_says_of_trained_policies_is_what_was_found():
    judged, page = json.loads(text("research/data/recheck.json"))["placeto-unseen"], unwrapped("docs/reproduction.md")

    def least(policy, clock):
        steps = {placer: {j["case"]: j[clock] for j in judged if j["placer"] == placer} for placer in CONSTRUCTIVE}
        own = {j["case"]: j[clock] for j in judged if j["placer"] == policy}
        shorter = [sum(own[case] < step for case, step in one.items()) for one in steps.values()]
        assert max(shorter) == len(own) == 24
        return f"{min(shorter)} to 24"

    def over_single(placer):
        step = {(j["case"], j["placer"]): j["grappler_s"] for j in judged}
        return median(step[case, placer] / step[case, "single"] for case, name in step if name == placer)

    assert (
        f"in {least(ALONE, 'grappler_s')} of the 24 graphs, that of `gdp` in {least('gdp', 'grappler_s')}, "
        f"where the simulator has {least(ALONE, 'simulated_s')} and {least('gdp', 'simulated_s')}." in page
    )
    assert f"they are at {over_single(ALONE):.2f} and {over_single('gdp'):.2f} of one device's step" in page
    assert min(over_single(placer) for placer in CONSTRUCTIVE) > 0.995, "none is below 1.00"
    shorter, at = {}, {}
    for clock in ("simulated_s", "grappler_s"):
        step = {(j["case"], j["placer"]): j[clock] for j in judged}
        mine = [case for case, name in step if name == "placeto"]
        shorter[clock] = sum(step[case, "placeto"] < step[case, ALONE] for case in mine)
        at[clock] = median(step[case, "placeto"] / step[case, "single"] for case in mine)
    assert (
        f"shorter than `{ALONE}` in {shorter['simulated_s']} of 24 graphs, at {at['simulated_s']:.2f} of one device's "
        f"step in the median, by Grappler in {shorter['grappler_s']} of 24, at {at['grappler_s']:.2f}"
    ) in page


def test_what_is_said_of_trained_policies_is_what_their_cards_say():
    for policy, ending in (("placeto", " the step of a search with 10,000 evaluations"), ("gdp", "")):
        best = [row["best"] for row in Pretrained.shipped(policy).card["exams"].values()]
        assert f"`{policy}` takes {min(best):.3f} to {max(best):.3f} times{ending}" in unwrapped("README.md")


def test_the_tables_of_unseen_graphs_are_those_of_the_committed_results():
    rows = rows_of("unseen")
    assert unseen_tables(rows) in text("docs/pretrained.md")
    over = {name: geometric_mean(over_optimised(rows, name)) for name in (ALONE, *TRAINED, *CONSTRUCTIVE)}
    assert max(over[name] for name in (ALONE, *TRAINED)) < min(over[name] for name in CONSTRUCTIVE)  # as the pages say
    said = " and ".join(f"{over[name]:.2f}" for name in TRAINED)
    middle = {name: median(over_optimised(rows, name)) for name in (ALONE, *TRAINED, "local_search_500")}
    readme, page = unwrapped("README.md"), unwrapped("docs/pretrained.md")
    medians = f"(in the median case {middle['placeto']:.2f} and {middle['gdp']:.2f})"
    assert f"{said} times the step of a minute of `auto` for each graph {medians}" in readme
    few, more, seconds = (
        geometric_mean(over_optimised(rows, name)) for name in ("local_search_49", "local_search_500", "auto_2000")
    )
    assert max(over[ALONE], over["gdp"]) < more < few
    searched = (
        f"`local_search` takes {few:.2f} times the step of a minute of `auto`, with ten times as many {more:.2f} times"
    )
    medians = f"{middle['local_search_500']:.2f}, is beside {middle[ALONE]:.2f} and {middle['gdp']:.2f} of the policies"
    assert f"With these {searched} (its median, {medians})" in page
    near = {name: sum(ratio <= 1.1 for ratio in over_optimised(rows, name)) for name in ("auto_2000", "placeto")}
    assert (
        f"`auto` takes {seconds:.2f} times with 2,000, and is within 10 % in {near['auto_2000']} of {len(rows)} cases"
    ) in page
    assert (
        f"without moves `placeto` takes {over[ALONE]:.2f} times, `local_search` with 500 placements {more:.2f} times, "
        f"`auto` with 2,000 {seconds:.2f}"
    ) in readme
    families = ", ".join(f"of {family} {median(own['placeto']):.2f}" for family, own in curves(rows).items())
    assert (
        f"With its moves `placeto` takes {over['placeto']:.2f} times that step ({middle['placeto']:.2f} in the median "
        f"case; {families}), and is within 10 % in {near['placeto']} of {len(rows)} cases"
    ) in page
    longest = median(row.median_s("placeto") / min(run.step_s for run in row.runs["auto"]) for row in rows)
    assert f"beside the best of three minutes of `auto` it takes {longest:.2f} times in the median case" in page
    assert "faster than the best of all constructive placers in every one" in page
    assert all(row.median_s("placeto") < row.best_constructive[1] for row in rows)
    both = [row for row in rows if row.ran("local_search_4049")]
    assert {row.facts.case.topology for row in both} == {"4xP100"}
    mine, theirs, blind = (
        geometric_mean(over_optimised(both, name)) for name in ("placeto", "local_search_4049", "random_search_4049")
    )
    assert (
        f"On 4xP100 `local_search` with as many placements takes {theirs:.2f} times that step, where `placeto` takes "
        f"{mine:.2f} (`random_search` {blind:.2f})"
    ) in page
    took = [run.cpu_s for row in rows for run in row.runs["placeto"]]
    ops = [row.facts.ops for row in rows]
    assert (
        f"takes {min(took):.1f} to {max(took):.1f} s of one processor for graphs of {min(ops):,} to {max(ops):,} ops"
    ) in page
    tried = [run.evaluations for row in rows for run in row.runs["auto"]]
    assert (
        f"in its 60 s it simulated {median(tried):,.0f} placements in the median run ({min(tried):,} to {max(tried):,})"
    ) in page
    own = [row for row in rows if row.ran(ITSELF)]
    shorter = [row.median_s(ALONE) / row.median_s(ITSELF) for row in own]
    assert len(own) == 24 and max(shorter) < 1
    claim = unwrapped("docs/reproduction.md")
    assert f"`{ALONE}` takes {geometric_mean(shorter):.2f} times the step of `placeto_scratch` with 20,000" in claim
    assert (
        f"`{ALONE}` takes {over[ALONE]:.2f} times its step, in the geometric mean, and `placeto`, which goes on with "
        f"4,000 moves, {over['placeto']:.2f} times"
    ) in claim


def test_the_tables_of_families_that_were_not_learned_from_are_those_of_the_committed_results():
    rows = rows_of("transfer")
    tables, page = transfer_tables(rows), unwrapped("docs/pretrained.md")
    assert tables in text("docs/pretrained.md")
    never, cases = re.search(r"in (\d+) of which it never has it", tables)[1], len(rows)
    assert f"that never comes in {never} of {cases} cases" in page
    soonest = min(float(ratio) for ratio in re.findall(r"\| ([\d.]+) +\|$", tables, re.MULTILINE))
    assert f"in the others after {soonest:.1f} times the evaluations and more" in page
    near = [row for row in rows if not row.facts.case.graph.startswith("cifar10")]
    far = [row for row in rows if row not in near]
    at_once = [row.median_s("placeto_elsewhere") / row.median_s("single") for row in near]
    assert f"`placeto` is at {min(at_once):.2f} to {max(at_once):.2f} times one device at once" in page
    ahead = sum(row.median_s("placeto_elsewhere") < row.median_s("placeto_scratch") for row in near)
    assert f"and, in {ahead} of {len(near)} cases, of learning anew" in page
    assert all(row.median_s("placeto_elsewhere") < min(map(row.median_s, ("heft", "m_sct"))) for row in near)
    behind = sum(min(map(row.median_s, ("heft", "m_sct"))) < row.median_s("placeto_tuned") for row in far)
    assert f"list scheduling is ahead in {behind} of {len(far)} cases" in page
    assert all(row.median_s("placeto_tuned") == row.median_s("single") for row in far)
    better = sum(row.median_s("random_search") < row.median_s("placeto_tuned") for row in rows)
    assert f"is ahead of `placeto_tuned` in {better} cases" in page
    assert f"the updates bring {re.search(r'placeto_tuned is ([0-9.]+ %) faster', tables)[1]}" in page


def test_the_tables_of_what_parts_are_worth_are_those_of_the_committed_results():
    rows = rows_of("ablation")
    page = unwrapped("docs/pretrained.md")
    assert ablation_tables(rows) in text("docs/pretrained.md")
    whole, parted = "gdp_whole", ("gdp_no_attention", "gdp_no_superposition")
    ptb = [row for row in rows if row.facts.case.graph.startswith("ptb")]
    costs = [row.median_s(name) / row.median_s(whole) - 1 for row in ptb for name in parted]
    ahead = sum(all(row.median_s(whole) < row.median_s(name) for name in parted) for row in ptb)
    assert f"ahead of both others in {ahead} of {len(ptb)} cases, by {100 * min(costs):.0f} to" in page
    assert f"to {100 * max(costs):.0f} %; on `nmt` it is behind both on the whole" in page
    nmt = [row for row in rows if row.facts.case.graph.startswith("nmt")]
    mean = {name: geometric_mean([row.median_s(name) for row in nmt]) for name in (whole, *parted)}
    assert max(mean, key=mean.__getitem__) == whole
    cells = [row for row in rows if row.facts.case.graph.startswith("cifar10")]
    mean = {n: geometric_mean([row.median_s(n) for row in cells]) for n in (whole, *parted, "metis")}
    assert sum(mean[name] < mean[whole] for name in parted) == 1, "on `cifar10` behind one of them"
    assert sum(mean["metis"] < mean[name] for name in (whole, *parted)) == 2
    mean = {n: geometric_mean([row.median_s(n) for row in rows]) for n in (whole, *parted, "heft", "metis")}
    assert max(mean[name] for name in (whole, *parted)) < min(mean["heft"], mean["metis"])
    assert mean[whole] > max(mean[name] for name in parted), "neither part is worth anything on the whole"


def test_what_is_said_of_coarse_groups_is_what_was_found():
    found, said = json.loads(text("research/data/coarse_groups.json")), unwrapped("docs/pretrained.md")
    arms = {"placeto": ("64 groups", "256 groups", "64, then 256"), "gdp": ("32 groups", "units", "32, then units")}
    dlrm = {}
    for policy, (coarse, usual, both) in arms.items():
        over = {
            kind: [median(one[both]) / median(one[usual]) for one in graphs.values()]
            for kind, graphs in found[policy].items()
        }
        alike = [kind for kind in over if abs(geometric_mean(over[kind]) - 1) < 0.03]
        assert alike == (["cifar10", "nmt", "ptb"] if policy == "placeto" else ["cifar10", "ptb"]), "about as good"
        zoo = over["zoo"]
        assert (
            f"`{policy}` is faster by 5 % and more on {sum(x <= 0.95 for x in zoo)}, by up to "
            f"{100 * (1 - min(zoo)):.0f} %, and slower by at most {100 * (max(zoo) - 1):.0f} %" in said
        )
        assert f"Of the {len(zoo)} models of the zoo" in said
        one = found[policy]["zoo"]["dlrm"]
        dlrm[policy] = median(one[coarse]) / median(one[usual])
    assert f"on `dlrm` `placeto` is {dlrm['placeto']:.0f} times slower with them, `gdp` {dlrm['gdp']:.0f} times" in said
    assert geometric_mean([median(o["32, then units"]) / median(o["units"]) for o in found["gdp"]["nmt"].values()]) < 1


def test_what_is_said_of_lessons_in_groups_is_what_was_found():
    found, said = json.loads(text("research/data/group_lessons.json")), unwrapped("docs/pretrained.md")
    minute = {
        row.facts.case.graph: row.median_s("auto") for row in rows_of("unseen") if row.facts.case.topology == "4xP100"
    }

    def over(family, arm):
        return geometric_mean([median(one[arm]) / minute[name] for name, one in found[family].items()])

    lessons = ", ".join(f"{over(family, 'merge, 256'):.2f} ({family})" for family in ("cifar10", "nmt"))
    assert f"takes {lessons} and {over('ptb', 'merge, 256'):.2f} (ptb) times the step of a minute" in said
    arms = ("merge, 256", "merge, 1,024", "heavy_edge, 256", "heavy_edge, 1,024")
    best = {family: min(arms, key=lambda arm: over(family, arm)) for family in found}
    assert best == {"cifar10": "merge, 1,024", "nmt": "merge, 1,024", "ptb": "heavy_edge, 1,024"}
    card = text("tfplace/learned/weights/placeto.md")
    behind = [
        100 * (float(re.search(rf"^\| {family} on 4xP100 +\| \d\.\d+ +\| (\d\.\d+)", card, re.M)[1]) - 1)
        for family in ("nmt", "ptb")
    ]
    assert f"`placeto` is {behind[0]:.0f} % (nmt) and {behind[1]:.0f} % (ptb) behind its own" in said
