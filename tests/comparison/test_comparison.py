"""Placers side by side on one problem of the user's."""

import json
import sys

import numpy as np
import pytest

import tfplace
from tests.report.test_html import Outline
from tfplace.comparison import comparison
from tfplace.comparison.comparison import BEST, RUNS, compare_placers
from tfplace.comparison.defaults import ALWAYS, PLACERS_BY_DEFAULT
from tfplace.core.costs import CostTable
from tfplace.core.placement import Placement
from tfplace.core.stepcost import STEP_TIME, THROUGHPUT
from tfplace.errors import InfeasibleError, InputError, MissingExtraError, UnknownNameError
from tfplace.files import alone_in
from tfplace.registry import PLACERS
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.testing import make_graph


@pytest.fixture(scope="module")
def problem():
    names = [f"{c}{i}" for c in "abc" for i in range(6)]
    edges = [f"{c}{i} -> {c}{i + 1}" for c in "abc" for i in range(5)]
    return tfplace.formulate(make_graph(dict.fromkeys(names, 10**8), edges), "2xP100")


class Fails:
    """A placer whose extra is missing."""

    citation = "none"

    def place(self, context):
        raise MissingExtraError("<magic>", "magic")


class Stops:
    """A placer during which the user presses Ctrl-C."""

    citation = "none"

    def place(self, context):
        context.key(np.repeat([1, 1, 2], 6).astype(np.int32))
        raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def placers():
    for name, placer in (("fails", Fails), ("stops", Stops)):
        PLACERS.add(name, placer)


def test_everything_is_run_and_the_best_is_the_best(problem):
    found = compare_placers(problem, ("auto", "metis"), budget=60, seeds=2)
    assert set(found.results.runs) == {*ALWAYS[STEP_TIME], "auto", "metis"}
    counts = {name: len(runs) for name, runs in found.results.runs.items()}
    assert counts == {"single": 1, "heft": 1, "random_search": 2, "local_search": 2, "auto": 2, "metis": 1}
    steps = [run.step_s for runs in found.results.runs.values() for run in runs]
    assert found.whole and found.best.cost.step_s == min(steps)
    assert Simulator(problem).key(problem.gather(found.best.op_device)) == (0, min(steps))
    medians = [found.results.median_s(name) for name in found.ranked()]
    assert medians == sorted(medians) and len(medians) == 6
    again = compare_placers(problem, ("auto", "metis"), budget=60, seeds=2)
    assert [run.step_s for runs in again.results.runs.values() for run in runs] == steps


def test_throughput_is_compared_by_loads(problem, tmp_path):
    found = compare_placers(problem, objective=THROUGHPUT, budget=60, seeds=1, folder=tmp_path)
    assert set(found.results.runs) == {*ALWAYS[THROUGHPUT], *PLACERS_BY_DEFAULT[THROUGHPUT]}
    loads = PipelineLoads(problem)
    assert found.results.facts.bound_s == loads.bound_s
    assert found.best.cost.objective == THROUGHPUT
    assert loads.key(problem.gather(found.best.op_device)) == (0, found.best.cost.step_s)
    assert found.best.cost.step_s == min(run.step_s for runs in found.results.runs.values() for run in runs)
    text, facts = found.summary(), found.to_dict()
    assert "Largest loads" in text and "times the throughput of the best single device" in text
    assert not any("step" in word.lower() for word in (text, found._repr_html_()))
    assert facts["best"]["load_s"] == found.best.cost.step_s and "load_s" in facts["placers"]["contiguous"]
    found.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "All largest loads are simulated" in page and "Largest load of each placer" in page
    again = compare_placers(problem, objective=THROUGHPUT, budget=60, seeds=1, folder=tmp_path)
    assert again.best.cost.step_s == found.best.cost.step_s
    with pytest.raises(InputError, match="results of objective 'throughput'; expected objective 'step_time'"):
        compare_placers(problem, budget=60, seeds=1, folder=tmp_path)
    with pytest.raises(UnknownNameError, match="'speed'"):
        compare_placers(problem, objective="speed", budget=60)


def test_what_it_says(problem):
    found = compare_placers(problem, ("fails",), budget=40, seeds=2)
    text = found.summary()
    assert "40 evaluations for each run" in text and "the bound" in text
    assert "fails was not run: " in text and "<magic>" in text
    assert "times faster than the best single device" in text.splitlines()[-1]
    outline = Outline(found._repr_html_())
    assert outline.open == [] and "<magic>" in " ".join(outline.words)
    facts = json.loads(json.dumps(found.to_dict()))
    assert facts["best"]["step_s"] == found.best.cost.step_s and "fails" in facts["troubles"]
    assert facts["placers"]["random_search"]["evaluations"] == [40, 40] and facts["simulated"]


def test_a_placer_that_ends_the_process_is_a_result(problem):
    class Exits(Fails):
        def place(self, context):
            sys.exit(5)

    PLACERS.add("exits", Exits)
    found = compare_placers(problem, ("exits",), budget=40, seeds=1)
    assert found.troubles()["exits"].startswith("SystemExit: 5 (see ")


def test_a_seed_that_failed_hides_no_other(problem, tmp_path):
    class Once(Fails):
        seeds = iter(range(3))

        def place(self, context):
            if next(self.seeds) == 1:
                raise MissingExtraError("<magic>", "magic")
            return np.repeat([1, 1, 2], 6)

    PLACERS.add("fails", Once)
    found = compare_placers(problem, ("fails",), budget=40, seeds=3)
    assert found.troubles()["fails"].startswith("1 of 3 seeds failed: ") and "fails" in found.ranked()
    text = found.summary()
    assert "fails: 1 of 3 seeds failed: " in text and "was not run" not in text
    found.save(tmp_path / "page.html")
    assert "fails: 1 of 3 seeds failed: " in (tmp_path / "page.html").read_text()


def test_the_page_has_the_best_placement(problem, tmp_path):
    found = compare_placers(problem, (), budget=60, seeds=2)
    found.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    outline = Outline(page)
    assert outline.open == [] and "http" not in page
    assert "The best placement" in " ".join(outline.words)
    assert page.count("<svg ") == 4


def test_one_that_was_stopped_goes_on(problem, tmp_path):
    found = compare_placers(problem, ("stops", "annealing"), budget=50, seeds=2, folder=tmp_path)
    assert not found.whole and set(found.results.runs) == set(ALWAYS[STEP_TIME])
    assert "stopped before everything was run" in found.summary()
    PLACERS.add("stops", PLACERS["single"])
    with (tmp_path / RUNS).open("a") as file:
        file.write('{"run": {"placer": "annea')  # as after kill -9
    told = []
    whole = compare_placers(problem, ("stops", "annealing"), budget=50, seeds=2, folder=tmp_path, tell=told.append)
    assert whole.whole and not any(text.startswith("heft") for text in told)
    afresh = compare_placers(problem, ("stops", "annealing"), budget=50, seeds=2)
    assert _steps(whole) == _steps(afresh)
    assert Placement.from_json((tmp_path / BEST).read_text(), problem=problem).cost.step_s == afresh.best.cost.step_s
    with pytest.raises(InputError, match="budget"):
        compare_placers(problem, budget=51, folder=tmp_path)


def test_the_best_is_kept_before_its_run(problem, tmp_path):
    compare_placers(problem, budget=50, placers=("auto",), seeds=1, folder=tmp_path)
    lines = (tmp_path / RUNS).read_text().splitlines(keepends=True)
    (tmp_path / RUNS).write_text("".join(lines[:3]))  # killed after the best was written
    kept = (tmp_path / BEST).read_text()
    assert (
        compare_placers(problem, budget=50, placers=("auto",), seeds=1, folder=tmp_path).best.cost.step_s
        == (json.loads(kept)["cost"]["step_s"])
    )
    for damaged in (b"{}", b"\xff\xfe\x00"):
        (tmp_path / BEST).write_bytes(damaged)
        with pytest.raises(InputError, match=BEST):
            compare_placers(problem, budget=50, placers=("auto",), seeds=1, folder=tmp_path)


def test_a_best_run_without_its_placement_is_run_again(problem, tmp_path):
    found = compare_placers(problem, (), budget=50, seeds=1, folder=tmp_path)
    (tmp_path / BEST).unlink()
    again = compare_placers(problem, (), budget=50, seeds=1, folder=tmp_path)
    assert again.best.cost.step_s == found.best.cost.step_s and (tmp_path / BEST).exists()


def test_a_placement_that_was_not_found_here_is_neither_taken_nor_written_over(problem, tmp_path):
    tfplace.place(problem, placer="auto", budget=51, progress=False).save(tmp_path / BEST)
    other = (tmp_path / BEST).read_bytes()
    with pytest.raises(
        InputError, match=rf"{BEST}, a placement by auto \(51 .*\); expected the best placement of this comparison"
    ):
        compare_placers(problem, (), budget=50, seeds=1, folder=tmp_path)
    assert (tmp_path / BEST).read_bytes() == other and not (tmp_path / RUNS).exists()

    (tmp_path / BEST).unlink()
    compare_placers(problem, (), budget=50, seeds=1, folder=tmp_path)
    (tmp_path / BEST).write_bytes(other)
    with pytest.raises(InputError, match="Use another folder"):
        compare_placers(problem, (), budget=50, seeds=1, folder=tmp_path)


@pytest.mark.parametrize("name", [BEST, RUNS])
def test_a_directory_where_a_file_is_meant(problem, tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=f"{name}.*directory"):
        compare_placers(problem, (), budget=50, seeds=1, folder=tmp_path)


def test_ops_that_cost_nothing_have_no_ratios(tmp_path):
    free = tfplace.formulate(
        make_graph({"a": 8, "b": 8}, ["a -> b"]), "2xP100", costs=CostTable(np.zeros((2, 3)), ("free",) * 2)
    )
    assert Simulator(free)(np.array([1, 1])).step_s == 0
    found = compare_placers(free, (), budget=20, seeds=1)
    found.save(tmp_path / "page.html")
    lines = [line.split() for line in found.summary().splitlines() if "heft" in line]
    assert lines and lines[0][4:6] == ["-", "-"], found.summary()
    assert Outline(found._repr_html_()).open == [] == Outline((tmp_path / "page.html").read_text()).open


def test_a_folder_is_of_one_comparison_at_a_time(problem, tmp_path):
    with alone_in(tmp_path), pytest.raises(InputError, match="another process is using"):
        compare_placers(problem, (), budget=50, seeds=1, folder=tmp_path)


def test_what_could_not_run_is_tried_again(problem, tmp_path):
    found = compare_placers(problem, ("fails",), budget=50, seeds=1, folder=tmp_path)
    assert "fails" in found.troubles()
    PLACERS.add("fails", PLACERS["single"])
    assert not compare_placers(problem, ("fails",), budget=50, seeds=1, folder=tmp_path).troubles()


def test_a_mistake_in_somebodys_placer_stops_no_other(problem):
    class Wrong:
        citation = "none"

        def place(self, context):
            return context.no_such_thing

    PLACERS.add("fails", Wrong)
    found = compare_placers(problem, ("fails", "metis"), budget=50, seeds=1)
    assert "AttributeError: " in found.troubles()["fails"] and __file__ in found.troubles()["fails"]
    assert {*ALWAYS[STEP_TIME], "metis"} <= set(found.results.runs)


def test_an_illegal_answer_is_no_result(problem):
    class Illegal(Fails):
        def place(self, context):
            return np.full(context.problem.num_units, 1)

    PLACERS.add("fails", Illegal)
    rules = tfplace.Constraints(forbid={"*": ["GPU:0"]})
    forbidden = tfplace.formulate(problem.graph, "2xP100", constraints=rules)
    found = compare_placers(forbidden, ("fails",), budget=50, seeds=1)
    assert "on GPU:0; expected a device" in found.troubles()["fails"]
    assert "GPU:0" not in found.best.devices.values()


class First:
    citation = "none"

    def place(self, context):
        return np.full(context.problem.num_units, 1)


class Second:
    citation = "none"

    def place(self, context):
        return np.repeat([1, 1, 2], 6)


def test_another_version_of_ones_own_placer_is_run_again(problem, tmp_path):
    said = []
    for placer, kept in ((First, 0), (First, 5), (Second, 4), (Second, 5)):
        PLACERS.add("fails", placer)
        said.clear()
        found = compare_placers(problem, ("fails",), budget=50, seeds=1, folder=tmp_path, tell=said.append)
        assert sum("runs are kept from an earlier call" in text for text in said) == (kept > 0)
        assert sum("(" in text for text in said) == 5 - kept
        devices = placer().place(type("SearchContext", (), {"problem": problem}))
        assert found.results.median_s("fails") == Simulator(problem)(devices).step_s


def test_the_best_of_another_version_is_forgotten_with_its_run(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "ALWAYS", {STEP_TIME: ("single",)})
    for placer in (Second, First, First):
        PLACERS.add("fails", placer)
        found = compare_placers(problem, ("fails",), budget=50, seeds=1, folder=tmp_path)
        fits = [run.step_s for runs in found.results.runs.values() for run in runs if run.step_s is not None]
        assert found.best.cost.step_s == min(fits)
        assert ("fails" in found.best.placer) == (placer is Second)


def test_a_stopped_run_may_have_come_further_than_the_one_in_its_place(problem, tmp_path, monkeypatch):
    """By the clock, on a machine that is slower now; its placement is kept, and the folder goes on."""
    monkeypatch.setattr(comparison, "ALWAYS", {STEP_TIME: ("single",)})
    further = compare_placers(problem, ("stops",), budget=50, seeds=1, folder=tmp_path).best
    PLACERS.add("stops", First)
    for _ in range(2):
        found = compare_placers(problem, ("stops",), budget=50, seeds=1, folder=tmp_path)
        assert found.whole and found.results.median_s("stops") > further.cost.step_s
        assert found.best.cost.step_s == further.cost.step_s


def test_what_was_found_until_ctrl_c_is_not_lost(problem, monkeypatch):
    monkeypatch.setattr(comparison, "ALWAYS", {STEP_TIME: ("single",)})
    found = compare_placers(problem, ("stops",), budget=50, seeds=1)
    assert not found.whole and set(found.results.runs) == {"single"}
    assert found.best.placer == "stops (50 evaluations)" and set(found.best.devices.values()) == {"GPU:0", "GPU:1"}


def test_ctrl_c_before_anything_was_run(problem, monkeypatch):
    monkeypatch.setattr(comparison, "ALWAYS", {STEP_TIME: ("stops",)})
    with pytest.raises(KeyboardInterrupt):
        compare_placers(problem, (), budget=50, seeds=1)


def test_bad_input(problem):
    with pytest.raises(InputError, match="seeds 0; expected a whole number of at least 1"):
        compare_placers(problem, seeds=0)
    with pytest.raises(UnknownNameError, match="autoo"):
        compare_placers(problem, ("autoo",))
    with pytest.raises(InputError, match=r"placers='metis'; expected a sequence of names. Write placers=\('metis',\)"):
        compare_placers(problem, "metis")


def test_the_public_function_places_groups(problem):
    found = tfplace.compare(
        problem.graph, "2xP100", placers=["metis"], budget=30, seeds=1, grouper="merge", groups=4, progress=False
    )
    assert found.results.facts.units == 3 and "3 groups" in found.title
    assert len(found.best.op_names) == problem.graph.num_ops
    with pytest.raises(InputError):
        tfplace.compare(problem, placers=["metis"], budget=30, grouper="merge", groups=0, progress=False)
    with pytest.raises(InputError, match="groups=4 without a grouper"):
        tfplace.compare(problem, placers=["metis"], budget=30, groups=4, progress=False)


def test_nothing_fits():
    """Four variables, of which each device holds one, on three devices."""
    graph = make_graph(dict.fromkeys("abcd", ()), variables=dict.fromkeys("abcd", 60))
    tight = tfplace.formulate(graph, "2xP100", max_memory={"*": 100})
    found = compare_placers(tight, (), budget=20, seeds=1)
    assert found.best is None and "no placer found a placement that fits" in found.summary()
    assert found.to_dict()["best"] is None
    assert "does not fit" in " ".join(Outline(found._repr_html_()).words)


def test_what_can_never_fit_is_refused_before_anything_is_run():
    graph = make_graph(dict.fromkeys("abcd", ()), variables=dict.fromkeys("abcd", 60))
    with pytest.raises(InfeasibleError) as error:
        compare_placers(tfplace.formulate(graph, "2xP100", max_memory={"*": 50}), (), tell=pytest.fail)
    assert [s.need_bytes for s in error.value.shortages] == [60] * 3


def _steps(found):
    return {
        name: [run.step_s for run in sorted(runs, key=lambda r: r.seed)] for name, runs in found.results.runs.items()
    }
