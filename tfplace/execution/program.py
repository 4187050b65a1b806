"""What a placed program must be able to do, whatever it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tfplace.execution.clusters import Cluster
from tfplace.execution.waits import NO_WAITS, Waits


class Program(Protocol):
    """A TensorFlow program whose ops can be put on devices."""

    @property
    def fixed(self) -> Mapping[str, tuple[str, str]]:
        """Ops that can be on one device only -> (full device name, why)."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Ops that stand for what the caller gives."""

    @property
    def copies(self) -> Mapping[str, str]:
        """Copied constant -> the constant."""

    compiles: bool
    """Whether the next call compiles, so that XLA may refuse it; set before."""

    def place(
        self, devices: Mapping[str, str], waits: Waits = NO_WAITS, clusters: Sequence[Cluster] | None = None
    ) -> None:
        """Puts every op on its device (full names), and the state with it; ops wait as told, and for nothing else.

        Clusters are compiled at the next call; with None nothing is.
        """

    def restore(self) -> None:
        """Puts the state back where it was before the first `place` of any program."""

    @property
    def placed(self) -> bool:
        """Whether it has been placed, and not restored since."""

    @property
    def stands(self) -> bool:
        """Whether the state is where the last `place` has put it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one step.

        Raises:
          CompilationError: XLA refuses a cluster; the state is as it was before the step.
        """

    def ran(self) -> Mapping[str, str] | None:
        """Op -> full name of the device it ran on at the first call since `place`; None before it."""
