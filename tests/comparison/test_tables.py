import pytest

from tfplace.comparison.tables import Page, fidelity_tables, replace_between
from tfplace.errors import InputError

ROW = {"name": "single CPU:0", "simulated_ratio": 1.0, "measured_ratio": 1.01}
RESULTS = {
    "experiments": [
        {
            "graph": "towers",
            "ops": 1234,
            "agreement": {
                "placements": 2,
                "spearman": 0.91,
                "kendall": 0.8,
                "median_error": 0.05,
                "p90_error": 0.1,
                "bias": -0.02,
                "regret": 0.0,
            },
            "split_half": 0.95,
            "placements": [ROW, {"name": "search 50", "simulated_ratio": 0.5, "measured_ratio": 0.6}],
            "options": {"default": {"median_error": 0.05, "spearman": 0.91}},
            "plain_tensorflow_ratio": 0.55,
        }
    ]
}


def test_tables_say_what_was_found():
    first, second, third = fidelity_tables(RESULTS).split("\n\n")
    assert "| towers | 1,234 | 2 " in first
    assert "0.910" in first
    assert "-2.0 %" in first
    assert "| towers | search 50" in second
    assert "| 0.600 " in second
    assert second.rstrip().endswith("| 0.550                      |")
    assert "5.0 %, 0.910" in third
    assert len({len(line) for line in first.splitlines()}) == 1


def test_tables_go_where_the_page_wants_them():
    page = "a\n<!-- tables: x -->\nold\n<!-- end -->\nz\n"
    assert replace_between(page, "x", "new") == "a\n<!-- tables: x -->\n\nnew\n\n<!-- end -->\nz\n"
    with pytest.raises(InputError, match="tables: y"):
        replace_between(page, "y", "new")


def test_a_place_without_an_end_does_not_take_that_of_the_next():
    page = "<!-- tables: x -->\nold\nprose\n<!-- tables: y -->\nold\n<!-- end -->\n"
    with pytest.raises(InputError, match="tables: x"):
        replace_between(page, "x", "new")
    assert "prose" in replace_between(page, "y", "new")


def test_a_page_is_asked_for_a_place_before_there_are_tables(tmp_path):
    path = tmp_path / "page.md"
    with pytest.raises(InputError, match="not there"):
        Page(path, "x")
    path.write_text("<!-- tables: y -->\nold\n<!-- end -->\n")
    with pytest.raises(InputError, match="tables: x"):
        Page(path, "x")
    page = Page(path, "y")
    page.write("new")
    assert path.read_text() == "<!-- tables: y -->\n\nnew\n\n<!-- end -->\n"
