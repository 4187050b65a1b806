import math

import pytest

from research.fidelity.agreement import agreement, rank_correlation
from tfplace.errors import InputError


def test_against_hand_computed_values():
    found = agreement([1.0, 2.0, 3.0, 4.0], [1.0, 2.5, 2.0, 5.0])
    assert found.placements == 4
    assert found.spearman == pytest.approx(1 - 6 * 2 / (4 * 15))  # ranks differ by one at two places
    assert found.kendall == pytest.approx(4 / 6)  # five pairs in order, one not
    assert found.median_error == pytest.approx(0.2)  # of 0, 0.2, 0.5, 0.2
    assert found.p90_error == pytest.approx(0.41)
    assert found.bias == pytest.approx(-0.1)
    assert found.regret == 0


def test_regret_is_what_believing_the_prediction_costs():
    assert agreement([1.0, 2.0, 3.0], [1.5, 1.2, 3.0]).regret == pytest.approx(0.25)


def test_without_variation_there_is_no_correlation():
    assert math.isnan(rank_correlation([1, 1, 1], [1, 2, 3]))
    assert math.isnan(agreement([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]).kendall)


@pytest.mark.parametrize("predicted", [[1.0, 2.0], [1.0, 2.0, math.inf], [1.0, 0.0, 2.0], [[1.0], [2.0], [3.0]]])
def test_what_cannot_be_compared_is_refused(predicted):
    with pytest.raises(InputError):
        agreement(predicted, [1.0, 2.0, 3.0])
