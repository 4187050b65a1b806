"""Pictures show what the placement and its timeline say."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import tfplace
from tests.report.cases import timeline
from tests.report.test_html import Outline
from tfplace.report import pictures
from tfplace.report.colours import PALETTE, device_colours
from tfplace.report.page.timeline_view import busy_share, timeline_picture
from tfplace.testing import make_graph, random_problem


@pytest.fixture(scope="module")
def placed():
    problem = random_problem(np.random.default_rng(0), 60, 3, unit=1e-3, ties=False)
    return tfplace.place(problem, placer="random", budget=5)


def test_what_part_of_each_slice_is_within_spans():
    edges = np.linspace(0.0, 4.0, 5)
    begin, end = np.array([0.5, 1.75, 3.0]), np.array([1.5, 2.0, 4.0])
    np.testing.assert_allclose(busy_share(begin, end, edges), [0.5, 0.75, 0.0, 1.0])
    overlapping = busy_share(np.array([0.0, 0.5]), np.array([4.0, 1.5]), edges)
    np.testing.assert_allclose(overlapping, [1, 1, 1, 1])


def test_slices_add_up_to_the_seconds_of_a_device():
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.random(40))
    begin, end = cuts[::2], cuts[1::2]
    edges = np.linspace(0.0, 1.0, 18)
    assert busy_share(begin, end, edges).mean() == pytest.approx((end - begin).sum())


def test_every_device_that_works_is_seen_in_its_colour(placed):
    drawn = pictures.placement_pictures(placed)
    assert len(drawn) == 4
    colours = device_colours(placed.device_names)
    for picture in drawn:
        outline = Outline(picture.html)
        assert outline.open == [] and outline.tags[0][1]["aria-label"]
        assert all(colours[d] in picture.html for d in np.unique(placed.op_device)), picture.caption


def test_the_same_placement_has_the_same_pictures(placed):
    assert pictures.placement_pictures(placed) == pictures.placement_pictures(placed)


def test_a_timeline_with_one_transfer():
    """GPU:0 computes for two thirds of the step, GPU:1 for the last, and both move something in the second."""
    said = dict(Outline(timeline_picture(timeline())).tags)["svg"]["aria-label"]
    assert "GPU:0 computes 67 %" in said and "GPU:1 computes 33 %" in said
    moving = re.findall(r'<path d="([^"]+)" fill="currentColor">', timeline_picture(timeline()))
    assert len(moving) == 2 and all("H133" in path and "H266" in path for path in moving)


def test_groups_are_on_one_device(placed):
    group, src, dst = pictures._groups(placed.problem, placed.op_device)
    for g in range(group.max() + 1):
        assert len(set(placed.op_device[group == g].tolist())) == 1
    assert (src != dst).all()


def test_a_graph_of_constants_has_pictures_too():
    graph = make_graph({"k": 8, "l": 8}, [], replicable=["k", "l"])
    placed = tfplace.place(graph, "2xP100", placer="single", budget=5, progress=False)
    assert all(Outline(picture.html).open == [] for picture in pictures.placement_pictures(placed))


def test_the_host_is_grey_where_there_are_others():
    assert device_colours(("CPU:0",)) != device_colours(("CPU:0", "GPU:0"))[:1]
    assert device_colours(("/job:worker/task:1/device:CPU:0", "GPU:0")) == device_colours(("CPU:0", "GPU:0"))
    many = device_colours(tuple(f"GPU:{i}" for i in range(8)))
    assert len(set(many)) == 8
    assert len(set(device_colours(tuple(f"GPU:{i}" for i in range(40))))) == 40


def linear(colour):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    """By WCAG 2.2."""
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("page", ["#ffffff", "#15181c"])
def test_colours_stand_out_from_light_and_dark_pages(page):
    for colour in (*PALETTE, device_colours(("CPU:0", "GPU:0"))[0]):
        low, high = sorted((luminance(colour), luminance(page)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour


def lab(rgb):
    """CIE L*a*b* of linear sRGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    f = np.cbrt(to_xyz @ np.clip(rgb, 1e-3, 1) / [0.9505, 1, 1.089])
    return np.array([116 * f[1], 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize(
    "seen_as",
    [
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ],
    ids=["no red", "no green", "no blue"],
)
def test_the_colour_blind_can_tell_devices_apart(seen_as):
    """By the matrices of Machado, Oliveira and Fernandes (2009), severity 1; a difference of 2.3 can just be seen."""
    names = ("CPU:0", *(f"GPU:{i}" for i in range(8)))
    shown = [lab(np.array(seen_as) @ linear(colour)) for colour in device_colours(names)]
    for many, least in ((7, 15), (9, 7)):
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(shown[:many], 2)) > least
