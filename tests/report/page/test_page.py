"""The report is one page that needs nothing but itself, and shows what the placement and its step are."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest

import tfplace
from tests.report import cases
from tests.report.browser import needs_chromium, seen
from tests.report.test_html import Outline
from tests.report.test_pictures import luminance
from tests.search.plans import layers, plan_of
from tfplace.report.facts import verdict
from tfplace.report.page.page import placement_page, plan_page
from tfplace.report.simulated_step import simulated_step
from tfplace.search.progress import Progress
from tfplace.testing import make_graph, make_topology, random_problem

SECTIONS = ["plans", "timeline", "devices", "memory", "layers", "transfers", "search"]


def place(graph_or_problem, topology=None, **options):
    return tfplace.place(graph_or_problem, topology, progress=False, **options)


@pytest.fixture(scope="module")
def placed():
    """A chain of layers over two devices, which sends something."""
    names = [f"net/{layer}/{op}" for layer in ("first", "second", "third") for op in ("mul", "add")]
    graph = make_graph(dict.fromkeys(names, 4 << 20), [f"{a} -> {b}" for a, b in itertools.pairwise(names)])
    pins = {"layer:first": "GPU:0", "layer:second": "GPU:1", "layer:third": "GPU:0"}
    return place(graph, "2xP100", placer="single", budget=5, constraints=tfplace.Constraints(pin=pins))


@pytest.fixture(scope="module")
def page(placed):
    points = [Progress(e, 0.1 * e, 0.1 * e, s, True, "auto") for e, s in ((1, 0.02), (5, 0.01), (9, 0.01))]
    return placement_page(placed, points)


def sections(page):
    return [dict(attrs)["id"] for tag, attrs in Outline(page).tags if tag == "section"]


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="step-data">(.*?)</script>', page, re.DOTALL)[1])


def test_every_section_is_there_and_named(page):
    outline = Outline(page)
    assert outline.open == [] and sections(page) == SECTIONS
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = [attrs[key] for _, attrs in outline.tags for key in ("aria-labelledby", "aria-describedby") if key in attrs]
    assert {*named} <= {*ids} and len(named) > len(SECTIONS)
    assert all(attrs.get("aria-label") for _, attrs in outline.tags if attrs.get("role") == "img")
    linked = [attrs["href"] for tag, attrs in outline.tags if tag == "a"]
    assert all(link.removeprefix("#") in ids for link in linked)


def test_it_needs_nothing_from_elsewhere(page):
    assert "http:" not in page and "https:" not in page
    tags = Outline(page).tags
    assert not [(tag, attrs) for tag, attrs in tags if "src" in attrs or tag == "link"]
    (policy,) = (attrs["content"] for _, attrs in tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_the_answer_comes_first(page, placed):
    words = " ".join(Outline("<body>" + page.partition("<body>")[2].partition("</html>")[0]).words)
    first, _, rest = words.partition("Plans side by side")
    assert verdict(placed) in first and "single GPU:0" in rest


def test_names_are_data_and_never_elements():
    name = "net/</script><b>&"
    made = make_graph({name: 4 << 20, "net/b": 4}, [f"{name} -> net/b"])
    page = placement_page(place(made, "2xP100", placer="single", budget=2))
    assert "<b>&" not in page and Outline(page).open == []
    data = data_of(page)
    assert data["names"]["rest"][0].startswith("net/</script><b>&")


def test_the_script_gets_every_op_that_takes_time(placed, page):
    data, timeline = data_of(page), placed.timeline()
    names = []
    for shared, rest in zip(data["names"]["shared"], data["names"]["rest"], strict=True):
        names.append((names[-1][:shared] if names else "") + rest)
    found, v, end, last = {}, 0, 0, None
    for device, count in data["ops"]["device"]:
        for _ in range(count):
            start = data["ops"]["gap"][v] + (end if device == last else 0)
            end, last = start + data["ops"]["took"][v], device
            layer = data["layers"][data["ops"]["layer"][v]]
            found[names[data["ops"]["name"][v]]] = (start, end, device, layer, data["ops"]["bytes"][v])
            v += 1
    assert found == {
        name: (
            round(1e9 * timeline.start_s[i]),
            round(1e9 * timeline.finish_s[i]),
            int(timeline.op_device[i]),
            name.split("/")[1],
            4 << 20,
        )
        for i, name in enumerate(timeline.op_names)
        if timeline.finish_s[i] > timeline.start_s[i]
    }
    assert len(data["moves"]["name"]) == 2 and data["moves"]["bytes"] == [4 << 20] * 2


def test_a_chain_is_critical_from_end_to_end(placed):
    step = simulated_step(placed)
    assert step.has_path and step.moved_critical.all()
    took = step.timeline.finish_s - step.timeline.start_s
    assert step.op_critical[took > 0].all()


def test_what_runs_beside_the_longest_path_is_not_critical():
    graph = make_graph({"long": 64 << 20, "short": 4, "end": 4}, ["long -> end", "short -> end"])
    rules = tfplace.Constraints(pin={"long": "GPU:0", "short": "GPU:1", "end": "GPU:0"})
    step = simulated_step(place(graph, "2xP100", placer="single", budget=2, constraints=rules))
    critical = dict(zip(step.timeline.op_names, step.op_critical.tolist(), strict=True))
    assert critical == {"long": True, "short": False, "end": True}


def test_a_placement_without_its_problem_has_tables():
    page = placement_page(cases.placement(baselines={"single GPU:0": cases.cost(0.0142, peak=(9, 1))}))
    assert sections(page) == ["plans", "devices"]
    words = " ".join(Outline(page).words)
    assert "too large" in words and "9.00 GiB of 4.00 GiB on GPU:0" in words and "problem.npz" in words
    assert data_of(page) is None


def test_a_plan_has_all_of_its_rows_and_the_step_of_one():
    plan = plan_of(layers(make_topology(2), [3.0, 1.0], [4, 4]))
    page = plan_page(plan)
    assert sections(page) == SECTIONS
    words = " ".join(Outline(page).words)
    assert all(row.name in words for row in plan.rows)
    assert page.count(">chosen<") == 1


def test_where_nothing_fits_the_nearest_row_shows_what_holds_the_memory():
    plan = plan_of(layers(make_topology(2, memory=5), [3.0, 1.0], [4, 4]))
    assert plan.chosen is None and plan.shown is not None
    words = " ".join(Outline(plan_page(plan)).words)
    assert "too much" in words and "activations 20 B, weights 8 B" in words


def test_ten_thousand_ops_make_less_than_two_megabytes():
    rng = np.random.default_rng(0)
    problem = random_problem(rng, 10_000, 4, unit=1e-4, ties=False)
    long = tuple(
        f"a_model_with_a_name/block_{v // 40}/attention/layer_normalization_{v}/batchnorm/mul_{v}"
        for v in range(10_000)
    )
    problem = replace(problem, graph=replace(problem.graph, op_names=long))
    page = placement_page(place(problem, placer="random", budget=1, baselines=()))
    assert len(page.encode()) < 2e6
    assert len(data_of(page)["ops"]["name"]) > 9_000


SEEN = """
view => {
  const inside = view.document, root = inside.documentElement, all = [...inside.body.querySelectorAll("*")];
  const box = one => one.getBoundingClientRect();
  const free = all.filter(one => !one.closest(".wide, .skip, .board, [hidden], thead") && box(one).width);
  const press = (one, key) => one.dispatchEvent(new view.KeyboardEvent("keydown", { key, bubbles: true }));
  const canvas = inside.getElementById("timeline-canvas"), picked = inside.getElementById("picked");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  press(canvas, "c");
  const onPath = picked.textContent;
  press(canvas, "ArrowDown");
  const below = picked.textContent;
  const rows = () => [...inside.querySelectorAll("#layers-table tbody tr")].filter(row => !row.hidden);
  const heading = inside.querySelectorAll("#layers-table thead th")[3];
  heading.firstElementChild.click();
  const times = rows().map(row => Number(row.cells[3].dataset.value));
  const filter = inside.getElementById("layers-filter");
  filter.value = "SECOND";
  filter.dispatchEvent(new view.Event("input"));
  return {
    width: root.scrollWidth,
    beyond: free.filter(one => box(one).right > root.clientWidth + 0.5).map(one => one.outerHTML.slice(0, 80)),
    headings: [...inside.querySelectorAll("h2")].map(one => one.textContent),
    colours: new Set(Array.from({ length: pixels.length / 4 }, (_, i) => pixels.slice(4 * i, 4 * i + 3).join())).size,
    still: inside.getElementById("timeline-still").offsetHeight,
    focusable: canvas.tabIndex,
    onPath, below,
    times, sorted: heading.getAttribute("aria-sort"),
    filtered: rows().map(row => row.cells[0].textContent), count: inside.getElementById("layers-count").textContent,
    page: view.getComputedStyle(inside.body).backgroundColor,
    texts: [...new Set(all.filter(one => one.innerText).map(one => view.getComputedStyle(one).color))],
    nameless: [...inside.querySelectorAll("button")].filter(one => !one.textContent.trim()).length,
    unlabelled: [...inside.querySelectorAll("input")].filter(one => !one.labels.length).length,
  };
}
"""


def contrast(one, other):
    """Of two colors such as "rgb(0, 0, 0)", by WCAG 2.2."""
    hexes = ["#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3]) for colour in (one, other)]
    low, high = sorted(map(luminance, hexes))
    return (high + 0.05) / (low + 0.05)


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_in_a_browser_it_is_used_by_keys_and_fits_its_width(page, width, dark, tmp_path):
    found = seen(page, SEEN, width, tmp_path, dark=dark)
    assert found["page"] == ("rgb(21, 24, 28)" if dark else "rgb(255, 255, 255)")
    assert len(found["texts"]) > 2 and all(contrast(text, found["page"]) >= 4.5 for text in found["texts"])
    assert found["beyond"] == [] and found["width"] <= width
    assert found["headings"][0] == "Plans side by side" and len(found["headings"]) == len(SECTIONS)
    assert found["colours"] > 4 and found["still"] == 0 and found["focusable"] == 0
    assert "on the critical path" in found["onPath"] and "GPU:0" in found["onPath"]
    assert "GPU:1" in found["below"]
    assert found["times"] == sorted(found["times"], reverse=True) and found["sorted"] == "descending"
    assert found["filtered"] == ["second"] and found["count"] == "1 of 3 layers"
    assert found["nameless"] == found["unlabelled"] == 0
