"""Options declared once: a dataclass field with its help, from which signatures, flags, tables and records are made."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar, cast

from tfplace.errors import InputError, UnknownOptionError

_SPEC = "option"
_WIDTH = 120
_PLACE = re.compile(r"^( +)(\w+|\*\*options): (?:see|those of) `\w+Options`\.\n", re.MULTILINE)
"""The lines of a docstring that generated ones replace."""

_Narrowed = TypeVar("_Narrowed", bound="Options")
Described = TypeVar("Described", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a field says of an option, beside its type and its default.

    Attributes:
      help: a phrase; the default follows it.
      python: more of it that is not about the command.
      unset: what the default stands for, if that is None or empty.
      page: of docs/, which says more.
      flag: on the command line; empty is the field's own name, None is no flag.
      kind: what the text of a flag is read as: `str`, `int`, `float`, `bool`, `tuple` (separated by commas) or `dict`
        (pairs around "=").
      form: stands for a value in help texts.
      repeated: whether the flag may be given more than once.
      choices: texts of a flag; empty for any.
      read: what a flag and its text or texts mean, instead of what `kind` says.
      least: of a number.
      most: of a number.
      recorded: whether a run directory records it, so that another value is another search; or what it records, given
        all options.
    """

    help: str
    python: str = ""
    unset: str = ""
    page: str = ""
    flag: str | None = ""
    kind: type = str
    form: str = ""
    repeated: bool = False
    choices: tuple[str, ...] = ()
    read: Callable[[str, Any], Any] | None = None
    least: int | None = None
    most: int | None = None
    recorded: bool | Callable[[Any], Any] = True


@dataclass(frozen=True)
class Option:
    """An option as it was declared.

    Attributes:
      name: in Python.
      type: its annotation, as text.
      default: its value if it is not given.
      spec: everything else.
    """

    name: str
    type: str
    default: Any
    spec: Spec

    @property
    def flag(self) -> str | None:
        """Its name on the command line; None if it has none."""
        return None if self.spec.flag is None else self.spec.flag or self.name

    @property
    def unset(self) -> str:
        """What the default stands for; empty if it stands for itself."""
        return self.spec.unset or ("none" if self.default in (None, "", ()) else "")

    @property
    def text(self) -> str:
        """The help with the default, for Python."""
        return f"{self.spec.help}{self.spec.python} (default: {self.unset or repr(self.default)})"


def option(default: Any, help: str, **spec: Any) -> Any:
    """A dataclass field that is an option; see `Spec`."""
    return field(default=default, metadata={_SPEC: Spec(help=help, **spec)})


class Options:
    """A group of options: a frozen dataclass whose fields were made by `option`.

    Attributes:
      title: of the group, in help texts.
      left_out: names of inherited options that the group does not have.
    """

    title: ClassVar[str] = ""
    left_out: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def declared(cls) -> dict[str, Option]:
        """Every option, by its name in Python."""
        return {
            f.name: Option(f.name, str(f.type), f.default, f.metadata[_SPEC])
            for f in dataclasses.fields(cast("Any", cls))
            if f.name not in cls.left_out
        }

    @classmethod
    def sections(cls) -> dict[type[Options], list[Option]]:
        """The options by the class that declares them, in the order of the fields."""
        own = [base for base in reversed(cls.__mro__) if "__annotations__" in vars(base)]
        declared = cls.declared()
        found = {base: [declared[name] for name in base.__annotations__ if name in declared] for base in own}
        return {base: options for base, options in found.items() if options}

    @classmethod
    def of(cls, where: str, given: Mapping[str, Any]) -> Self:
        """Options from keywords.

        Args:
          where: what was called with them.
          given: name -> value.

        Raises:
          UnknownOptionError: there is no such option; lists near names.
        """
        known = cls.declared()
        for name in given:
            if name not in known:
                raise UnknownOptionError(f"option of {where}", name, known)
        return cls(**given)

    def narrowed(self, to: type[_Narrowed], **changed: Any) -> _Narrowed:
        """The options that another group has too, some of them changed."""
        return to(**{name: getattr(self, name) for name in to.declared()} | changed)

    def given(self) -> dict[str, Any]:
        """Name -> value, of all options."""
        return {name: getattr(self, name) for name in self.declared()}

    def spelled(self, name: str) -> str:
        """An option with its value, as the user gave it."""
        return f"{name}={getattr(self, name)!r}"

    def refuse_empty(self) -> None:
        """Refuses empty texts, which would otherwise count as options that are not given.

        Raises:
          InputError: there is one.
        """
        for name, declared in self.declared().items():
            value = getattr(self, name)
            if isinstance(value, str) and not value:
                expected = declared.spec.form or "a text"
                raise InputError(self.spelled(name), f"{expected}, or no {name}", "Is a variable unset?")

    def record(self) -> dict[str, Any]:
        """What a run directory keeps: the options that make another search if they change."""
        kept = {name: declared.spec.recorded for name, declared in self.declared().items()}
        return {
            name: getattr(self, name) if recorded is True else recorded(self)
            for name, recorded in kept.items()
            if recorded is not False
        }


def described(options: type[Options]) -> Callable[[Described], Described]:
    """Gives a function that takes `**options`, or a class made with them, its real signature and the help of each.

    Lines "name: see `SomeOptions`." and "**options: those of `SomeOptions`." of the docstring are replaced. Parameters
    that the function names itself stay where they are.
    """

    def describe(what: Described) -> Described:
        function: Any = vars(what)["__init__"] if inspect.isclass(what) else what
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        names = {p.name for p in own}
        more = [declared for name, declared in options.declared().items() if name not in names]
        kind = inspect.Parameter.KEYWORD_ONLY
        added = [inspect.Parameter(one.name, kind, default=one.default, annotation=one.type) for one in more]
        function.__signature__ = signature.replace(parameters=[*own, *added])
        cast("Any", what).__doc__ = _filled(what.__doc__ or "", options.declared())
        return what

    return describe


def _filled(doc: str, declared: Mapping[str, Option]) -> str:
    """A docstring with the help of options: of some by name, of all others at `**options`."""
    named = {line[2] for line in _PLACE.finditer(doc)}
    rest = [one for name, one in declared.items() if name not in named]

    def lines(place: re.Match[str]) -> str:
        shown = rest if place[2].startswith("*") else [declared[place[2]]]
        return "".join(
            textwrap.fill(
                f"{one.name}: {one.text}.", _WIDTH, initial_indent=place[1], subsequent_indent=f"{place[1]}  "
            )
            + "\n"
            for one in shown
        )

    return _PLACE.sub(lines, doc)
