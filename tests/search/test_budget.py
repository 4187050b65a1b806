from __future__ import annotations

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
        ("500 evaluations", Budget(evaluations=500)),
        ("1 evaluation", Budget(evaluations=1)),
        (Budget(evaluations=3), Budget(evaluations=3)),
    ],
)
def test_forms(given, wanted):
    assert Budget.parse(given) == wanted


@pytest.mark.parametrize("given", ["", "soon", "-3s", 0, 0.0, -1, "0s", "0 evaluations", True, "30 parsecs"])
def test_nonsense_is_refused(given):
    with pytest.raises(InputError, match="expected"):
        Budget.parse(given)
