"""What parts of a policy are worth, as text."""

import pytest

from research.suites.suites import ABLATION
from research.tables.ablation_table import PARTED, WHOLE, ablation_text, families_table
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Case, Facts, Run


def results(graph, **steps):
    case = Case(graph, "4xP100")
    runs = {name: [Run(case, name, 0, s, 0, 49, 1.0, 1.0, (), "")] for name, s in steps.items()}
    return CaseResults(Facts(case, 10, 8, 2, 1.0, "f"), runs)


def test_the_parts_are_those_of_the_suite():
    assert {WHOLE, *PARTED} == {*ABLATION.trained}


def test_what_a_part_is_worth():
    rows = [
        results("ptb_0", single=4.0, gdp_whole=2.0, gdp_no_attention=4.0, gdp_no_superposition=2.0),
        results("nmt_10", single=4.0, gdp_whole=2.0, gdp_no_attention=2.0, gdp_no_superposition=None),
    ]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in families_table(rows).splitlines()]
    assert lines[0] == ["step over single", "ptb", "nmt", "all"]
    found = {line[0]: line[1:] for line in lines[2:]}
    assert found["gdp_no_attention"] == ["1.000", "0.500", "0.707"]
    assert found["gdp_no_superposition"] == ["0.500", "-", "0.500"]
    first, second = ablation_text(rows).splitlines()
    assert first.startswith("gdp_no_attention takes 1.414 times") and first.endswith("slower in 1 of 2 cases")
    assert second.startswith("gdp_no_superposition takes 1.000 times") and second.endswith("slower in 0 of 1 cases")


@pytest.mark.parametrize("steps", [{}, {"single": 1.0}, {"gdp_whole": 1.0}])
def test_a_part_of_the_suite_has_tables_too(steps):
    rows = [results("ptb_0", **steps)]
    assert ablation_text(rows).startswith("no case yet")
    assert "nan" not in families_table(rows)
