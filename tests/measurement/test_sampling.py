"""The measuring protocol, with steps and a probe made up."""

import itertools
import math

import numpy as np
import pytest

from tfplace.core.stepcost import Samples
from tfplace.errors import InputError
from tfplace.measurement.protocol.sampling import ATTEMPTS, split_half, take_samples


class Log:
    """Steps that write down that they ran, and a probe that says what it is told to."""

    def __init__(self, step_s=(), reference_s=(), disturbances=()):
        self.ran = []
        self._step_s, self._reference_s = iter(step_s), iter(reference_s)
        self._disturbances = iter(disturbances)

    def step(self):
        self.ran.append("step")
        return next(self._step_s)

    def reference(self):
        self.ran.append("reference")
        return next(self._reference_s)

    def probe(self):
        """One value for each step; 0 for the look before a turn."""
        self.ran.append("look")
        return next(self._disturbances)


def test_warms_up_then_takes_turns():
    log = Log(itertools.count(1.0), itertools.count(10.0))
    samples = take_samples(log.step, log.reference, warmup=2, repeats=3)
    assert log.ran == ["step", "reference"] * 5
    assert samples.step_s.tolist() == [3.0, 4.0, 5.0]
    assert samples.reference_s.tolist() == [12.0, 13.0, 14.0]
    assert (samples.warmup, samples.rejected, samples.disturbed) == (2, 0, 0)
    assert samples.ratio == pytest.approx(4 / 13)


def test_defaults_are_five_dropped_and_ten_kept():
    log = Log(itertools.count(1.0))
    samples = take_samples(log.step)
    assert samples.step_s.tolist() == list(range(6, 16))
    assert samples.warmup == 5 and not len(samples.reference_s) and samples.ratio is None


def test_looks_before_between_and_after():
    log = Log([1.0], [2.0], itertools.repeat(0.0))
    take_samples(log.step, log.reference, log.probe, warmup=0, repeats=1)
    assert log.ran == ["look", "step", "look", "reference", "look"]


@pytest.mark.parametrize("disturbed", ["step", "reference"])
def test_disturbed_turns_are_left_out_and_made_up_for(disturbed):
    # what the looks say: before the turn (of no account), after the step, after the reference
    loud = [1.0, 0.9, 0.0] if disturbed == "step" else [1.0, 0.0, 0.9]
    log = Log(itertools.count(1.0), itertools.count(1.0), [*loud, *[0.5, 0.01, 0.04] * 3])
    samples = take_samples(log.step, log.reference, log.probe, warmup=0, repeats=3)
    assert samples.step_s.tolist() == [2.0, 3.0, 4.0]
    assert samples.rejected == 1 and samples.disturbed == 0


def test_never_quiet_keeps_the_least_disturbed_and_says_so():
    shares = [0.9, 0.2, 0.01, 0.3, 0.7, 0.8]
    log = Log(itertools.count(1.0), (), itertools.chain.from_iterable((0.0, s) for s in shares))
    samples = take_samples(log.step, None, log.probe, warmup=0, repeats=2)
    assert len(shares) == ATTEMPTS * 2
    assert samples.step_s.tolist() == [2.0, 3.0]
    assert samples.rejected == 4 and samples.disturbed == 1


def test_a_turn_that_cannot_be_measured_ends_it():
    def breaks():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take_samples(breaks)


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"warmup": -1}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(InputError, match="at least"):
        take_samples(lambda: 1.0, **wrong)


def _samples(even, odd):
    steps = np.array([even, odd, even, odd])
    return Samples(steps, np.ones(4))


def test_split_halves_that_agree():
    agreement = split_half([_samples(t, 1.1 * t) for t in (1.0, 2.0, 3.0)])
    assert agreement.spearman == pytest.approx(1)
    assert agreement.difference == pytest.approx(0.1 / 1.05)
    assert str(agreement) == "split halves of 3 placements: Spearman 1.00, median difference 9.5%"


def test_split_halves_that_do_not():
    agreement = split_half([_samples(1.0, 3.0), _samples(2.0, 2.0), _samples(3.0, 1.0)])
    assert agreement.spearman == pytest.approx(-1)


def test_split_half_of_one_placement_has_no_correlation():
    agreement = split_half([_samples(1.0, 1.0)])
    assert math.isnan(agreement.spearman) and agreement.difference == 0
    with pytest.raises(InputError, match="at least one"):
        split_half([])


def test_a_single_step_has_no_halves():
    alone = Samples(np.array([1.0]), np.array([1.0]))
    assert split_half([alone, _samples(1.0, 2.0)]).placements == 1
    with pytest.raises(InputError, match="two steps"):
        split_half([alone])
