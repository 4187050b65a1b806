"""Workers that know a problem, and the parts of its search that are with them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait

from tfplace.core.engine import LOOK_S, Engine
from tfplace.core.evaluator import Evaluator
from tfplace.errors import WorkersError
from tfplace.search.parts import Done, Part, done, own_context, warmed


class Crew:
    """Workers of one problem, which each of them is sent once.

    Args:
      engine: starts them.
      evaluator: of the problem.
      grouper: of its units; None if these are placed one by one.
      groups: how many are wanted.

    Raises:
      InputError: the evaluator cannot be sent to another process.
    """

    def __init__(
        self, engine: Engine, evaluator: Evaluator, grouper: str | None = None, groups: int | None = None
    ) -> None:
        self._workers = engine.start(functools.partial(own_context, evaluator, grouper, groups))
        self._warm = [self._workers.submit(warmed) for _ in range(self._workers.count)]
        self._late: dict[Future[Done], Part] = {}

    @property
    def count(self) -> int:
        """How many workers are free for a part at the moment, at least one."""
        return max(self._workers.count - len(self._late), 1)

    def ready(self) -> None:
        """Waits until the workers have laid the problem out, which does not count as search time.

        Raises:
          InputError: they cannot make it.
          WorkersError: they cannot be started.
        """
        while wait(self._warm, LOOK_S).not_done:
            pass
        for future in self._warm:
            future.result()

    def answers(
        self, parts: Iterable[Part], *, until_s: float | None, waiting: Callable[[], None]
    ) -> Iterator[tuple[Part, Done]]:
        """Each part with what it came to.

        A part whose workers are lost again and again has failed, and the others go on.

        Args:
          parts: asked for when a worker is free.
          until_s: by `time.monotonic`, when those that are not done are waited for no longer. Their answers come with
            those of later calls. None waits for all, and answers in the order of the parts, so that nothing depends on
            which worker is quicker.
          waiting: called twice a second.

        Raises:
          WorkersError: all parts have failed, or workers do not come back.
        """
        tasks: dict[Future[Done], Part] = {}
        queue, lost, any_done = iter(parts), None, False
        try:
            while until_s is None or time.monotonic() < until_s:
                while len(tasks) < self.count and (part := next(queue, None)) is not None:
                    tasks[self._workers.submit(done, part)] = part
                if not tasks:
                    break
                wait([*tasks, *self._late], LOOK_S, FIRST_COMPLETED)
                waiting()
                for future in _finished(tasks, in_order=until_s is None) + _finished(self._late, in_order=False):
                    part = (tasks if future in tasks else self._late).pop(future)
                    error = future.exception()
                    if isinstance(error, WorkersError):
                        lost = error
                        yield part, Done(0, failed=str(error))
                    else:
                        any_done = True
                        yield part, future.result()
        finally:
            self._late |= tasks
        if lost is not None and not any_done:
            raise lost

    def close(self) -> None:
        """Ends the workers; what they have not answered is lost."""
        self._workers.close()


def _finished(tasks: dict[Future[Done], Part], *, in_order: bool) -> list[Future[Done]]:
    """Those that are done; in order, only the first ones up to one that is not."""
    futures = [*tasks]
    ready = [future.done() for future in futures]
    if in_order:
        return futures[: ready.index(False) if False in ready else len(ready)]
    return [future for future, is_ready in zip(futures, ready, strict=True) if is_ready]
