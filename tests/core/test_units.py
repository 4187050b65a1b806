import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace import formatting, units
from tfplace.errors import InputError


@given(st.integers(0, 2**53))
def test_sizes_are_read_as_written(size):
    assert units.parse_bytes(formatting.format_bytes(size)) == pytest.approx(size, rel=0.006)
    assert units.parse_bytes(size) == size == units.parse_bytes(f"{size}B")


@given(st.floats(1e-9, 1e9))
def test_durations_are_read_as_written(seconds):
    assert units.parse_seconds(formatting.format_seconds(seconds)) == pytest.approx(seconds, rel=0.006)
    assert units.parse_seconds(repr(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.99951, "1.00 s"),
        (0.99949, "999 ms"),
        (9.999, "10.0 s"),
        (0.09999, "100 ms"),
        (9.99e-4, "999 us"),
        (0.0, "0 s"),
    ],
)
def test_durations_are_rounded_before_their_unit_is_chosen(seconds, text):
    assert formatting.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_bytes, "12GiB", 12 * 2**30),
        (units.parse_bytes, " 1.5 kB ", 1500),
        (units.parse_bytes, "1e3", 1000),
        (units.parse_seconds, "25us", 25e-6),
        (units.parse_seconds, "25µs", 25e-6),
        (units.parse_seconds, "2min", 120.0),
        (units.parse_bandwidth, "10GB/s", 10e9),
        (units.parse_bandwidth, "1GiB/s", 2**30),
        (units.parse_flops, "9.3TFLOP/s", 9.3e12),
        (units.parse_flops, "15TFLOPS", 15e12),
    ],
)
def test_units(parse, text, value):
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize("parse", [units.parse_bytes, units.parse_seconds, units.parse_bandwidth, units.parse_flops])
@pytest.mark.parametrize("value", ["", "GiB", "1 parsec", "-1", "1e999", math.nan, math.inf, True, None, [1], "1..2"])
def test_what_is_no_quantity_is_refused(parse, value):
    with pytest.raises(InputError, match="expected a"):
        parse(value)


def test_a_size_is_no_duration():
    with pytest.raises(InputError, match=r"'12GiB'; expected a duration.*Known units: s, ms"):
        units.parse_seconds("12GiB")


def test_odd_durations_are_written():
    assert formatting.format_seconds(0) == "0 s"
    assert formatting.format_seconds(math.inf) == "inf"
    assert formatting.format_seconds(3e-9) == "3.00 ns"
