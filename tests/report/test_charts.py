"""Charts can be read: no two curves are alike, and nothing lies on them."""

import math

import pytest

from tfplace.report import charts, drawing


@pytest.fixture
def drawn(monkeypatch):
    """Figures in the order in which they were drawn."""
    figures = []

    def keep(figure, alt):
        figures.append(figure)
        return drawing.image(figure, alt)

    monkeypatch.setattr(charts, "image", keep)
    return figures


def names(count):
    return [f"a_rather_long_name_{i}" for i in range(count)]


@pytest.mark.parametrize("count", [1, 4, 20])
def test_a_legend_is_large_and_beside_the_curves(drawn, count):
    charts.curves_chart({name: [[(1, 0.2), (50, 0.1)]] for name in names(count)}, 50)
    charts.cumulative_chart({name: [1.0, 2.0] for name in names(count)}, "x", names(count))
    for figure in drawn:
        (axis,), (legend,) = figure.axes, figure.legends
        box, whole = legend.get_window_extent(), figure.bbox
        assert legend.get_texts()[0].get_fontsize() >= 11
        assert not axis.get_legend() and not axis.get_tightbbox().overlaps(box)
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0
        assert axis.get_window_extent().height > 0.6 * figure.dpi * 3  # the legend takes nothing from the curves


def test_no_two_curves_are_alike(drawn):
    charts.curves_chart({name: [[(1, 0.2), (50, 0.1)]] for name in names(40)}, 50)
    charts.cumulative_chart({name: [1.0, 2.0] for name in names(40)}, "x", names(40))
    for figure in drawn:
        looks = [(line.get_color(), line._unscaled_dash_pattern) for line in figure.axes[0].lines]
        assert len(set(looks)) == len(looks) == 40


def test_curves_that_are_not_named_are_pale_and_not_in_the_legend(drawn):
    charts.cumulative_chart({"a": [1.0, 2.0], "b": [1.5, 3.0], "c": [2.0, 2.0]}, "x", ["c", "a"])
    (axis,), (legend,) = drawn[0].axes, drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["c", "a"]
    pale, *named = axis.lines
    assert pale.get_color() not in {line.get_color() for line in named} and list(pale.get_xdata()) == [1.5, 3.0, 3.0]


def test_runs_that_do_not_fit_are_told_beside_their_bar(drawn):
    steps = {
        "a": [0.1, math.inf, 0.2],
        "b": [math.inf, math.inf, 0.1],
        "c": [0.1, 0.1],
        "d": [0.1] * 3 + [math.inf] * 2,
    }
    charts.steps_chart(steps, 0.05)
    texts = [text.get_text().strip() for text in drawn[0].axes[0].texts]
    assert [text for text in texts if text] == ["2 of 5 do not fit", "does not fit", "1 of 3 does not fit"]


def test_runs_beyond_the_scale_are_told_beside_their_bar(drawn):
    steps = {"a": [0.1, 0.1], "b": [0.2, 0.2, 9.0], "c": [9.0, 9.0, 8.0], "d": [0.1, 0.1, 3.0, 4.0, 0.1]}
    charts.steps_chart(steps, 0.05)
    texts = [text.get_text().strip() for text in drawn[0].axes[0].texts]
    assert [text for text in texts if text] == ["2 of 5 beyond, up to 4.00 s", "9.00 s", "1 of 3 beyond, up to 9.00 s"]
    most = drawn[0].axes[0].get_xlim()[1]
    assert all(x <= most for line in drawn[0].axes[0].lines if line.get_marker() == "." for x in line.get_xdata())


def test_long_names_leave_room_for_the_bars_and_are_no_formulas(drawn):
    long = "my_company.research.placement.experimental.policies:TransformerPlacerV2"
    charts.steps_chart({long: [0.2], "my$\\frac{$x": [0.1]}, 0.05)
    charts.curves_chart({long: [[(1, 0.2)]], "my$\\frac{$x": [[(1, 0.1)]]}, 50)
    bars, curves = drawn
    assert bars.axes[0].get_position().width > 0.5
    box = curves.legends[0].get_window_extent()
    assert curves.bbox.x0 <= box.x0 and box.x1 <= curves.bbox.x1
    shown = [text.get_text() for text in curves.legends[0].get_texts()]
    assert shown == ["my_company.re…formerPlacerV2", r"my\$\frac{\$x"]


def test_curves_of_nothing_but_zeros_are_drawn(drawn, recwarn):
    charts.curves_chart({"free": [[(1, 0.0)]]}, 50)
    assert not recwarn.list and drawn[0].axes[0].get_yscale() == "linear"
