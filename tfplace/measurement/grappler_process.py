"""Grappler in a process of its own: what ends that process, or keeps it from answering, is an error and no more."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from grappler_bridge.step import Step, StepFigures
from grappler_bridge.worker import serve
from tfplace.engines.child_process import ChildEndedError, ChildProcess, ChildTimeoutError

_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
"""Shows no warnings, and leaves GPUs, which virtual devices do not need, to others."""


class GrapplerLostError(RuntimeError):
    """The process in which Grappler ran ended without an answer."""


class GrapplerTimeOutError(RuntimeError):
    """Grappler had no answer in time, and its process was ended."""


class GrapplerProcess:
    """A `StepGraph` in another process, started by the first question and anew after it was lost.

    Not to be shared by threads. The process ends with `close`, with this object, with this process, and on Linux with
    the thread that started it (the next question then starts another).

    Args:
      step: the graph.
      time_out_s: seconds after which a question is given up and the process ended; starting it is not counted.
      start_s: the same for starting it, which loads TensorFlow.
    """

    def __init__(self, step: Step, time_out_s: float = 300.0, start_s: float = 300.0) -> None:
        self._step = step
        self._time_out_s = time_out_s
        self._start_s = start_s
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, or None while there is none."""
        return self._child.pid if self._child else None

    @property
    def ended(self) -> bool:
        """Whether there is no process, or one that has ended, which is found when it is asked."""
        return self._child is None or self._child.ended

    def own_s(self, op_device: Sequence[int]) -> float:
        """As `StepGraph.own_s`.

        Raises:
          GrapplerInputError, GrapplerError: as there.
          GrapplerLostError: the process ended without an answer.
          GrapplerTimeOutError: no answer in time.
        """
        return float(self._ask("own_s", op_device))

    def figures(self, op_device: Sequence[int]) -> StepFigures:
        """As `StepGraph.figures`; raises what `own_s` raises."""
        figures: StepFigures = self._ask("figures", op_device)
        return figures

    def start(self) -> None:
        """Starts the process unless it runs; questions do that by themselves.

        Raises:
          GrapplerLostError, GrapplerTimeOutError: it did not come up.
        """
        if self.ended:
            self.close()
            self._child = ChildProcess(serve, _ENVIRONMENT)
            self._exchange(self._child, self._step, self._start_s)

    def close(self) -> None:
        """Ends the process, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _ask(self, method: str, *arguments: Any) -> Any:
        self.start()
        assert self._child is not None
        done, answer = self._exchange(self._child, (method, arguments), self._time_out_s)
        if done:
            return answer
        raise answer

    def _exchange(self, child: ChildProcess, question: Any, time_out_s: float) -> Any:
        """Sends something and waits for what comes back."""
        try:
            return pickle.loads(child.ask(pickle.dumps(question), timeout_s=time_out_s))
        except BaseException as error:
            self.close()
            if isinstance(error, ChildTimeoutError):
                raise GrapplerTimeOutError(f"Grappler gave {error}") from error
            if isinstance(error, ChildEndedError):
                raise GrapplerLostError(f"the process in which Grappler ran ended {error}") from error
            raise
