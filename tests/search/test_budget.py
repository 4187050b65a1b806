from __future__ import annotations

import numpy as np
import pytest

from tfplace.errors import InputError
from tfplace.search.budget import Budget


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("30s", Budget(seconds=30.0)),
        ("2min", Budget(seconds=120.0)),
        (1.5, Budget(seconds=1.5)),
        (500, Budget(evaluations=500)),
        (np.int64(500), Budget(evaluations=500)),
        (np.float64(1.5), Budget(seconds=1.5)),
        ("500 evaluations", Budget(evaluations=500)),
        ("1 evaluation", Budget(evaluations=1)),
        (Budget(evaluations=3), Budget(evaluations=3)),
    ],
)
def test_forms(given, wanted):
    assert Budget.parse(given) == wanted


@pytest.mark.parametrize(
    "given", ["", "soon", "-3s", 0, 0.0, -1, "0s", "0 evaluations", True, "30 parsecs", None, np.ones(2), np.True_]
)
def test_nonsense_is_refused(given):
    with pytest.raises(InputError, match="expected"):
        Budget.parse(given)


def test_evaluations_are_python_integers():
    assert type(Budget.parse(np.int32(3)).evaluations) is int


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500", '"500s" or "500 evaluations"'), (" +7 ", '"7s" or "7 evaluations"'), ("1.5", '"1.5s"'), ("1e3", '"1e3s"')],
)
def test_a_text_without_a_unit_is_refused(text, expected):
    with pytest.raises(InputError) as caught:
        Budget.parse(text)
    assert caught.value.received == repr(text)
    assert caught.value.expected == expected


def test_what_is_no_budget_is_told_what_is_one():
    with pytest.raises(InputError, match=r"'soon'; expected a time such as \"30s\" or \"2min\", or \"500 evaluations"):
        Budget.parse("soon")


def test_a_negative_time_is_refused_in_english():
    with pytest.raises(InputError, match="expected a finite, non-negative duration such as"):
        Budget.parse(-3.0)
