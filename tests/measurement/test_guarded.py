"""Sessions on other processes: a step that gRPC sent twice."""

import pytest
import tensorflow as tf

from tfplace.measurement.backends.guarded import GuardedSession

SENT_TWICE = "The same RunGraph (Worker) request was received twice. tensorflow.RunGraphRequest"


class Failing:
    """A step that fails a number of times, then gives the number of calls."""

    def __init__(self, monkeypatch, message, failures):
        self.calls = 0
        self._message, self._failures = message, failures
        monkeypatch.setattr(tf.compat.v1.Session, "make_callable", lambda session, fetches: self)
        monkeypatch.setattr(tf.compat.v1.Session, "run", lambda session, fetches: self())

    def __call__(self):
        self.calls += 1
        if self.calls <= self._failures:
            raise tf.errors.AbortedError(None, None, self._message)
        return self.calls


@pytest.fixture
def session():
    with GuardedSession("", tf.Graph(), tf.compat.v1.ConfigProto(), lambda call: call()) as session:
        yield session


def test_a_step_that_was_sent_twice_runs_again(monkeypatch, session):
    Failing(monkeypatch, SENT_TWICE, 1)
    assert session.run([]) == 2
    Failing(monkeypatch, SENT_TWICE, 1)
    step = session.make_callable([])
    assert [step(), step()] == [2, 3]


def test_a_step_that_knows_its_way_runs_again_too(monkeypatch, session):
    failing = Failing(monkeypatch, SENT_TWICE, 0)
    step = session.make_callable([])
    assert step() == 1
    failing._failures = 2
    assert step() == 3


@pytest.mark.parametrize(("message", "failures", "calls"), [(SENT_TWICE, 5, 2), ("the worker restarted", 1, 1)])
def test_it_runs_again_but_once_and_for_that_alone(monkeypatch, session, message, failures, calls):
    failing = Failing(monkeypatch, message, failures)
    with pytest.raises(tf.errors.AbortedError):
        session.run([])
    assert failing.calls == calls
