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
    """A placement method. A constructor without arguments makes it.

    What a placer can do is declared by its class and read without making one. Each declaration has a default, so a
    small placer needs only `place`.

    Attributes:
      citation: where the method comes from.
      accepts_starts: supports warm starts. The search sets `starts` before it calls `place`, and the answer is never
        worse than any of them.
      needs_slices: places split steps only, and raises InputError for others.
      learned: trains a policy, or uses a trained one.
      needs_tensorflow: loads TensorFlow in `place`. Fine-tuning loads it in any case.
      pretrained: has weights from other graphs. Its constructor takes `weights` and `fine_tune`.
      supports_controllers: several processes can train its policy together; see `SearchContext.controllers`.
      supports_workers: workers can search together, each with a seed of its own; see `tfplace.search.many_workers`.
      extra: the optional dependency of tfplace that it needs, as in `pip install 'tfplace[extra]'`.
      starts: [U] placements to start from; empty for none.
      settings: constants of the method, with a `repr` that tells all of them. A run directory that was made with other
        settings is refused.
      notes: what to report about the last call of `place`, one line each.
      proven_s: no placement's simulated seconds can be lower, as the last call of `place` has proven; 0 for no proof.
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
          MissingExtraError: it is not; says how to install it.
        """

    @abstractmethod
    def place(self, context: SearchContext) -> IntArray:
        """[U] a device for each unit; need not fit the memory if nothing that does was found.

        If the context has seen a better one, that one counts.

        Raises:
          BudgetSpentError: from the context; its best placement then counts.
        """


def placer_class(name: str, found: Any) -> type[Placer]:
    """The class of placers that a name in the registry stands for.

    A class with a method `place` that does not derive from `Placer` gets the defaults of the declarations it lacks.

    Args:
      name: for the error.
      found: what is registered under it.

    Raises:
      InputError: it is no class, or a class without `place`.
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
    """`plain` with `Placer` behind it; one class for each, so that a name always stands for the same."""
    same = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    made: type[Placer] = types.new_class(plain.__name__, (plain, Placer), exec_body=lambda body: body.update(same))
    return made
