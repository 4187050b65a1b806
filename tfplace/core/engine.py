"""What runs tasks somewhere: the seam at which an engine for many machines fits in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

LOOK_S = 0.5
"""How long the main thread waits without looking up. The system may give Ctrl-C to another thread of the process; then
nothing wakes the main one, in which it counts."""

Result = TypeVar("Result")


class Workers(Protocol):
    """Workers that each have made a thing of their own, and run tasks on it."""

    @property
    def count(self) -> int:
        """How many there are at the moment, which may change."""

    def submit(self, task: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """What `task(own, *arguments)` returns or raises, once a worker has been free for it.

        A worker that ends meanwhile costs that trial only: another one does the task from its beginning, so tasks are
        to leave nothing behind but their results.

        Args:
          task: a function of a module, as everything else that is sent.
          arguments: numbers, arrays and what is made of them.
        """

    def close(self) -> None:
        """Ends all workers; tasks that are not done are canceled. Calling it again does nothing."""


class Engine(Protocol):
    """Starts workers.

    An engine for many machines needs no more than this: something on each worker that calls `make` once, `task(own,
    *arguments)` called there, and the futures of those calls.
    """

    @property
    def count(self) -> int:
        """How many it starts."""

    def start(self, make: Callable[[], Any]) -> Workers:
        """Workers that have called `make` for what is their own.

        Args:
          make: a function of a module, or a `functools.partial` of one.

        Raises:
          InputError: what is to be sent there cannot be sent.
        """


@dataclass(frozen=True)
class Controllers:
    """The processes that train a policy together. Each samples, evaluates and differentiates; one has the parameters.

    Attributes:
      engine: starts the workers, which run the controllers' trials.
      asynchronous: whether a gradient is applied as soon as it is available, to parameters that others may have changed
        since its computation began, as in section 3.3 of Mirhoseini 2017. Otherwise the mean of all gradients is
        applied once all are available. Then the same seed gives the same result, whatever the speed of controllers and
        whichever restart.
      count: number of controllers, on which the result depends. By default one for each worker; if asynchronous, also
        for workers that join later.
    """

    engine: Engine
    asynchronous: bool = False
    count: int | None = None

    @property
    def number(self) -> int:
        """The number of controllers at the start."""
        return self.engine.count if self.count is None else self.count
