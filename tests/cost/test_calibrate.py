"""Fits of transfers: exact on exact data, unmoved by outliers, and split between the ends and the wire."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.cost.calibrate import MAX_BANDWIDTH, TransferTimes, fit_line, fit_link
from tfplace.errors import InputError

SIZES = np.array([1024.0 * 4**i for i in range(9)])


def times(one_way, send, receive):
    lines = [np.array([a + b * n for n in SIZES]) for a, b in (one_way, send, receive)]
    return TransferTimes("CPU:0", "CPU:1", SIZES, *lines)


@given(st.floats(1e-6, 1e-2), st.floats(1e-11, 1e-8))
def test_a_line_is_found_exactly(fixed, per_byte):
    line = fit_line(SIZES, fixed + per_byte * SIZES)
    assert line.fixed_s == pytest.approx(fixed, rel=1e-6)
    assert line.per_byte_s == pytest.approx(per_byte, rel=1e-6)


@given(st.sets(st.integers(0, 8), min_size=1, max_size=3), st.floats(3, 100))
def test_outliers_do_not_move_it(which, factor):
    seconds = 50e-6 + 0.4e-9 * SIZES
    seconds[list(which)] *= factor
    line = fit_line(SIZES, seconds)
    assert line.fixed_s == pytest.approx(50e-6, rel=0.35)
    assert line.per_byte_s == pytest.approx(0.4e-9, rel=0.35)


def test_small_sizes_count_as_much_as_large_ones():
    noisy = (50e-6 + 0.4e-9 * SIZES) * np.array([1.02, 0.97, 1.01, 0.99, 1.03, 1.0, 0.98, 1.02, 0.9])
    line = fit_line(SIZES, noisy)
    assert np.abs(line(SIZES) / noisy - 1).max() < 0.15
    assert line.fixed_s == pytest.approx(50e-6, rel=0.05)


def test_neither_part_is_negative():
    assert fit_line(SIZES, 1e-3 - 1e-12 * SIZES).per_byte_s == 0.0
    assert fit_line([100.0, 200.0], [1e-3, 3e-3]).fixed_s == 0.0


@pytest.mark.parametrize(
    ("sizes", "seconds"), [([1.0], [1.0]), ([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0]), ([1.0, 2.0], [0.0, 1.0])]
)
def test_what_is_no_line_is_refused(sizes, seconds):
    with pytest.raises(InputError):
        fit_line(sizes, seconds)


def test_the_wire_has_what_the_ends_leave():
    fit = fit_link(times((300e-6, 2e-9), (50e-6, 0.4e-9), (80e-6, 0.6e-9)))
    link = fit.link
    assert link.send_overhead_s == pytest.approx(50e-6)
    assert link.receive_overhead_s_per_byte == pytest.approx(0.6e-9)
    assert link.latency_s == pytest.approx(170e-6)
    assert link.bandwidth == pytest.approx(1e9)
    assert fit.modelled_s == pytest.approx(fit.times.one_way_s)
    assert fit.fit_error == pytest.approx(0, abs=1e-9)
    assert fit.excess == pytest.approx(0, abs=1e-9)


def test_ends_that_take_longer_than_the_way_keep_their_time():
    overlapping = times((50e-6, 0.5e-9), (30e-6, 0.2e-9), (60e-6, 0.45e-9))
    fit = fit_link(overlapping)
    assert (fit.link.latency_s, fit.link.bandwidth) == (0.0, MAX_BANDWIDTH)
    assert fit.link.send_overhead_s == pytest.approx(30e-6)
    assert fit.excess == pytest.approx(0.8, rel=0.05)


def test_or_are_shortened_alike_if_asked():
    fit = fit_link(times((50e-6, 0.5e-9), (30e-6, 0.2e-9), (60e-6, 0.45e-9)), within_one_way=True)
    assert fit.modelled_s == pytest.approx(fit.times.one_way_s)
    assert fit.link.receive_overhead_s / fit.link.send_overhead_s == pytest.approx(2)
    assert fit.link.receive_overhead_s_per_byte / fit.link.send_overhead_s_per_byte == pytest.approx(0.45 / 0.2)


def test_ends_too_small_to_measure_take_nothing():
    fit = fit_link(times((50e-6, 0.5e-9), (-1e-6, 0.0), (0.0, 0.0)))
    assert fit.link.send_overhead_s == fit.link.receive_overhead_s == 0.0
    assert fit.link.latency_s == pytest.approx(50e-6)
