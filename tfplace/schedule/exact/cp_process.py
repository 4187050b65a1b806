"""CP-SAT in a process of its own: OR-Tools crashes where TensorFlow was loaded before it."""

from __future__ import annotations

import dataclasses
import importlib.util
import pickle
import time

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import STEP_TIME
from tfplace.engines.child_process import ChildEndedError, ChildProcess, ChildTimeoutError, MessagePipe
from tfplace.errors import MissingExtraError
from tfplace.schedule.exact.cp_model import Answer, Limits, solve, step_model, throughput_model
from tfplace.simulation.evaluate import timeline_of

_GRACE_S = 120.0
"""To start, to build the model and to stop."""


@dataclasses.dataclass(frozen=True)
class Question:
    """What the process is asked.

    Attributes:
      problem: what is placed.
      objective: `STEP_TIME` or `THROUGHPUT`.
      start: [U] a placement that fits.
      start_s: its value.
      begin_s: [V] when its ops start in a simulated step; empty by another objective.
      limits: how long it may take.
    """

    problem: Problem
    objective: str
    start: IntArray
    start_s: float
    begin_s: FloatArray
    limits: Limits


def check_installed() -> None:
    """Says so if OR-Tools is missing.

    Raises:
      MissingExtraError: it is.
    """
    if importlib.util.find_spec("ortools") is None:
        raise MissingExtraError("placer 'exact' without OR-Tools", "ortools", "pip install 'tfplace[exact]'")


def ask(problem: Problem, objective: str, start: IntArray, start_s: float, limits: Limits) -> Answer:
    """Solves the model of a problem; if the process fails nothing is found or proven, and the status says why."""
    begin_s = timeline_of(problem, problem.spread(start)).start_s if objective == STEP_TIME else np.zeros(0)
    question = Question(problem, objective, start, start_s, begin_s, limits)
    timeout_s = None if limits.until is None else max(limits.until - time.time(), 0.0) + _GRACE_S
    child = ChildProcess(serve)
    try:
        found: Answer = pickle.loads(child.ask(pickle.dumps(question), timeout_s=timeout_s))
    except ChildTimeoutError:
        return Answer(0.0, [], "out of time")
    except ChildEndedError as error:
        return Answer(0.0, [], f"failed ({error})")
    finally:
        child.close()
    return found


def serve(pipe: MessagePipe) -> None:
    """In the process: answers one question."""
    pipe.send(pickle.dumps(answer(pickle.loads(pipe.receive()))))


def answer(question: Question) -> Answer:
    """Builds the model and solves it."""
    q = question
    if q.objective == STEP_TIME:
        return solve(step_model(q.problem, q.start, q.start_s, q.begin_s), q.limits)
    return solve(throughput_model(q.problem, q.start, q.start_s), q.limits)
