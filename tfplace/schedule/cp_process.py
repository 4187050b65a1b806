"""CP-SAT in a process of its own: OR-Tools crashes where TensorFlow was loaded before it."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import STEP_TIME
from tfplace.engines.worker_child import end_with
from tfplace.errors import MissingExtraError
from tfplace.schedule.cp_model import Answer, Limits, solve, step_model, throughput_model
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
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, str(os.getpid())],
            input=pickle.dumps(question),
            capture_output=True,
            env={**os.environ, "PYTHONPATH": path},
            timeout=None if limits.until is None else max(limits.until - time.time(), 0.0) + _GRACE_S,
            start_new_session=True,  # Ctrl-C is for the search, which then ends this process
            check=True,
        )
    except subprocess.TimeoutExpired:
        return Answer(0.0, [], "out of time")
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Answer(0.0, [], " ".join(["failed", f"({error.returncode})", *last]))
    try:
        answer: Answer = pickle.loads(done.stdout)
    except (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, AttributeError) as error:
        return Answer(0.0, [], f"failed (its answer cannot be read: {error})")
    return answer


def answer(question: Question) -> Answer:
    """Builds the model and solves it."""
    q = question
    if q.objective == STEP_TIME:
        return solve(step_model(q.problem, q.start, q.start_s, q.begin_s), q.limits)
    return solve(throughput_model(q.problem, q.start, q.start_s), q.limits)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.modules["tfplace.schedule.cp_process"] = sys.modules["__main__"]  # under which name the question was written
    sys.stdout.buffer.write(pickle.dumps(answer(pickle.load(sys.stdin.buffer))))
