"""Pictures show what the placement and its timeline say."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

import tfplace
from tests.report.cases import timeline
from tfplace.report import pictures
from tfplace.report.drawing import device_colours, image
from tfplace.report.html import placement_page
from tfplace.testing import make_graph, random_problem


def shown(html):
    """Height, width and 3 colours of an `img` element."""
    data = re.fullmatch(r'<img alt="[^"<>]+" src="data:image/png;base64,([^"]+)">', html)[1]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def has(picture, colour):
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return bool((np.abs(picture.astype(int) - rgb).max(axis=2) < 3).any())


@pytest.fixture(scope="module")
def placed():
    problem = random_problem(np.random.default_rng(0), 60, 3, unit=1e-3, ties=False)
    return tfplace.place(problem, placer="random", budget=5)


def test_what_part_of_each_slice_is_within_spans():
    edges = np.linspace(0.0, 4.0, 5)
    begin, end = np.array([0.5, 1.75, 3.0]), np.array([1.5, 2.0, 4.0])
    np.testing.assert_allclose(pictures._share(begin, end, edges), [0.5, 0.75, 0.0, 1.0])
    overlapping = pictures._share(np.array([0.0, 0.5]), np.array([4.0, 1.5]), edges)
    np.testing.assert_allclose(overlapping, [1, 1, 1, 1])


def test_slices_add_up_to_the_seconds_of_a_device():
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.random(40))
    begin, end = cuts[::2], cuts[1::2]
    edges = np.linspace(0.0, 1.0, 18)
    assert pictures._share(begin, end, edges).mean() == pytest.approx((end - begin).sum())


def test_every_device_that_works_is_seen_in_its_colour(placed):
    drawn = pictures.placement_pictures(placed)
    assert len(drawn) == 4
    used = np.unique(placed.op_device)
    colours = device_colours(placed.device_names)
    for picture in drawn[:2]:
        seen = shown(picture.html)
        assert seen.shape[1] > 800
        for d in used:
            assert has(seen, colours[d]), (picture.caption, d)


def test_the_same_placement_has_the_same_pictures(placed):
    assert pictures.placement_pictures(placed) == pictures.placement_pictures(placed)


def test_a_timeline_with_one_transfer():
    seen = shown(pictures.timeline_picture(timeline()))
    assert all(has(seen, colour) for colour in device_colours(("GPU:0", "GPU:1")))


def test_groups_are_on_one_device(placed):
    group, src, dst = pictures._groups(placed.problem, placed.op_device)
    for g in range(group.max() + 1):
        assert len(set(placed.op_device[group == g].tolist())) == 1
    assert (src != dst).all()


def test_a_graph_of_constants_has_pictures_too():
    graph = make_graph({"k": 8, "l": 8}, [], replicable=["k", "l"])
    placed = tfplace.place(graph, "2xP100", placer="single", budget=5, progress=False)
    assert all(shown(picture.html).size for picture in pictures.placement_pictures(placed))
    assert "<img " in placement_page(placed)


def test_the_host_is_grey_where_there_are_others():
    assert device_colours(("CPU:0",)) != device_colours(("CPU:0", "GPU:0"))[:1]
    many = device_colours(tuple(f"GPU:{i}" for i in range(8)))
    assert len(set(many)) == 8
    assert len(set(device_colours(tuple(f"GPU:{i}" for i in range(40))))) == 40


def test_the_legend_of_devices_is_above_the_picture(placed, monkeypatch):
    figures = []
    monkeypatch.setattr(pictures, "image", lambda figure, alt: figures.append(figure) or image(figure, alt))
    pictures.layers_picture(placed.problem, placed.op_device)
    (axis,), (legend,) = figures[0].axes, figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == [*placed.device_names]
    assert legend.get_texts()[0].get_fontsize() >= 11
    assert legend.get_window_extent().y0 >= axis.get_tightbbox().y1


def test_the_page_has_them_or_says_why_not(placed, monkeypatch):
    assert placement_page(placed).count("<img ") == 4

    def none(height):
        raise tfplace.errors.MissingExtraError("pictures", "matplotlib", "pip install 'tfplace[plots]'")

    monkeypatch.setattr(pictures, "blank", none)
    page = placement_page(placed)
    assert "<img" not in page and "No pictures: " in page and "tfplace[plots]" in page
