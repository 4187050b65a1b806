import sys

import pytest

from research.tables.plots import gain_curves, scaling_curves, scatter
from tfplace.errors import InputError

PANELS = {"one": ([1.0, 2.0], [1.1, 1.9]), "two": ([1.0, 3.0], [1.0, 2.0])}


def test_scatter_writes_a_picture(tmp_path):
    from matplotlib import image

    scatter(tmp_path / "picture.png", PANELS, axes=("simulated", "measured"))
    height, width, _ = image.imread(tmp_path / "picture.png").shape
    assert width > 1.5 * height


def test_scaling_curves_write_a_panel_for_each_title(tmp_path):
    from matplotlib import image

    curves = {"plan": [(1, 10.0), (8, 70.0)], "data parallel": [(1, 10.0), (8, 50.0)]}
    for name, panels in {"one": {"a": curves}, "two": {"a": curves, "b": curves}}.items():
        scaling_curves(tmp_path / f"{name}.png", panels, axes=("devices", "rate"))
    one, two = (image.imread(tmp_path / f"{name}.png").shape for name in ("one", "two"))
    assert two[1] > 1.8 * one[1]


def test_gain_curves_of_unlike_lengths_are_one_picture(tmp_path):
    gain_curves(tmp_path / "gain.png", {"a": [(1, 1.0), (8, 0.9)], "b": [(1, 1.0)]}, axes=("workers", "step"))
    assert (tmp_path / "gain.png").stat().st_size > 1000


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'tfplace\[plots\]'"):
        scatter(tmp_path / "picture.png", PANELS, axes=("simulated", "measured"))
