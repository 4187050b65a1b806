"""The role of a placer: a placement method, and what it declares about itself."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext
from tfplace.errors import InputError


class Placer(ABC):
    """A placement method. Its constructor must work without arguments.

    The class declares what a placer can do, and tfplace reads that without making a placer. Each declaration has a
    default, so a small placer needs only `place`.

    Attributes:
      citation: the source of the method.
      accepts_starts: supports warm starts. The search sets `starts` before it calls `place`, and the answer is never
        worse than any of them.
      needs_slices: places split steps only, and raises InputError for others.
      learned: trains a policy, or uses a trained one.
      needs_tensorflow: loads TensorFlow in `place`. Fine-tuning loads it in any case.
      pretrained: has weights trained on other graphs. Its constructor takes `weights` and `fine_tune`.
      supports_controllers: several processes can train its policy together; see `SearchContext.controllers`.
      supports_workers: workers can search together, each with its own seed; see `tfplace.search.many_workers`.
      extra: the optional dependency of tfplace that it needs, as in `pip install 'tfplace[extra]'`.
      starts: placements to start from, each [U] devices; empty for none.
      settings: constants of the method, with a `repr` that shows all of them. A checkpoint directory made with other
        settings is refused.
      notes: remarks on the last call of `place`, one line each.
      proven_s: lower bound of the simulated seconds of all placements, proven by the last call of `place`; 0 for none.
    """

    citation: ClassVar[str] = ""
    accepts_starts: ClassVar[bool] = False
    needs_slices: ClassVar[bool] = False
    learned: ClassVar[bool] = False
    needs_tensorflow: ClassVar[bool] = False
    pretrained: ClassVar[bool] = False
    supports_controllers: ClassVar[bool] = False
    supports_workers: ClassVar[bool] = False
    extra: ClassVar[str | None] = None

    starts: tuple[IntArray, ...] = ()
    settings: object = None
    notes: tuple[str, ...] = ()
    proven_s: float = 0.0

    @classmethod  # noqa: B027 - most need none
    def check_extra(cls) -> None:
        """Checks that the package behind `extra` is installed.

        Raises:
          MissingExtraError: it is not installed. The error says how to install it.
        """

    @abstractmethod
    def place(self, context: SearchContext) -> IntArray:
        """Returns [U] a device for each unit, as 32-bit integers.

        The placement may exceed the memory if the placer found none that fits. If the context has seen a better
        placement, the search takes that one.

        Args:
          context: the problem, the budget and the random generator.

        Raises:
          BudgetSpentError: raised by the context; you need not catch it. The search then takes the context's best
            placement.
        """


def placer_class(name: str, found: Any) -> type[Placer]:
    """The placer class behind a name in the registry.

    A class with a method `place` that does not derive from `Placer` gets the defaults of missing declarations.

    Args:
      name: the name, for the error.
      found: what is registered under the name.

    Raises:
      InputError: it is not a class, or a class without `place`.
    """
    if isinstance(found, type):
        plain: Any = found  # to mypy, a class may not be hashable
        with contextlib.suppress(TypeError):  # a class that cannot have another beside it
            made: type[Placer] = found if issubclass(found, Placer) else _with_defaults(plain)
            if not inspect.isabstract(made):
                return made
    raise InputError(
        f"placer {name!r}, {found!r}",
        "a class with a method `place(self, context)`",
        "Derive it from tfplace.core.placer.Placer.",
    )


@functools.cache
def _with_defaults(plain: type[Any]) -> type[Placer]:
    """A subclass of `plain` and `Placer`. It is cached, so that a name always stands for the same class."""
    same = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    made: type[Placer] = types.new_class(plain.__name__, (plain, Placer), exec_body=lambda body: body.update(same))
    return made
