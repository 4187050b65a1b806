"""The tables of options in docs/, made from the declared options; `scripts/make_docs.py` writes them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import PurePosixPath

from tfplace.cli.calibrate import CalibrateFlags
from tfplace.cli.click_options import shown
from tfplace.cli.extract import ExtractFlags
from tfplace.cli.flags import CompareFlags, PlaceFlags, PlanFlags
from tfplace.cli.memory import MemoryFlags
from tfplace.cli.profile import ProfileFlags
from tfplace.cli.report import PageFlags
from tfplace.cli.worker import WorkerFlags
from tfplace.errors import InputError
from tfplace.option_fields import Option, Options
from tfplace.options import CompareOptions, FitOptions

_BEGIN, _END = "<!-- generated: options ", "<!-- end -->"

_FOLDER = "reference"

PAGES = (f"docs/{_FOLDER}/cli.md", f"docs/{_FOLDER}/keras.md")
"""Where there are tables."""

COMMANDS: dict[str, type[Options]] = {
    "plan": PlanFlags,
    "report": PageFlags,
    "extract": ExtractFlags,
    "memory": MemoryFlags,
    "profile": ProfileFlags,
    "calibrate": CalibrateFlags,
    "worker": WorkerFlags,
}
"""Commands by name, each with a table of the flags that it alone has."""


def written(page: str) -> str:
    """A page with every table as it is to be.

    Raises:
      InputError: there is no such table, or it has no end.
    """
    before, *parts = page.split(_BEGIN)
    out = [before]
    for part in parts:
        name, closed, rest = part.partition(" -->\n")
        _, ended, after = rest.partition(_END)
        if not closed or not ended:
            raise InputError(f"a page with {_BEGIN}{name} and no end", f"{_END} after it")
        out.append(f"{_BEGIN}{name} -->\n\n{option_table(name)}\n{_END}{after}")
    return "".join(out)


def option_table(name: str) -> str:
    """One of the tables, as Markdown.

    Args:
      name: "fit" for the arguments of `PlacementCallback`, one of `COMMANDS` for its own flags; else the title of a
        group of flags of `tfplace place` or `compare`, in lower case.

    Raises:
      InputError: there is no such table.
    """
    if name == "fit":
        return _table("argument", (_argument(one) for one in FitOptions.declared().values()))
    known = _flags(PlaceFlags) | {CompareOptions.title.lower(): CompareFlags.sections()[CompareOptions]}
    known |= {command: _own_flags(flags) for command, flags in COMMANDS.items()}
    if name not in known:
        raise InputError(f"a table of options {name!r}", f"one of {', '.join(['fit', *known])}")
    return _table("flag", (_flag(one) for one in known[name] if one.flag))


def _own_flags(flags: type[Options]) -> list[Option]:
    """Those that `tfplace place` does not have too."""
    shared = PlaceFlags.sections()
    return [one for section, own in flags.sections().items() if section not in shared for one in own]


def _flags(flags: type[Options]) -> dict[str, list[Option]]:
    """Flags by the title of their group, in lower case."""
    out: dict[str, list[Option]] = {}
    for section, own in flags.sections().items():
        out.setdefault(section.title.lower(), []).extend(own)
    return out


def _argument(one: Option) -> tuple[str, str, str]:
    default = one.unset or f"`{one.default!r}`"
    return f"`{one.name}`", _meaning(one, one.spec.help + one.spec.python), default


def _flag(one: Option) -> tuple[str, str, str]:
    spec = one.spec
    value = "" if spec.kind is bool else f"={spec.form or one.name.upper()}"
    default = one.unset or f"`{shown(one.default)}`"
    return f"`--{one.flag}{value}`", _meaning(one, spec.help + (". Repeatable" if spec.repeated else "")), default


def _meaning(one: Option, text: str) -> str:
    if not one.spec.page:
        return text
    title = PurePosixPath(one.spec.page).stem.replace("_", " ")
    return f"{text} ([{title}]({posixpath.relpath(one.spec.page, _FOLDER)}))"


def _table(first: str, rows: Iterable[tuple[str, str, str]]) -> str:
    lines = [(first, "meaning", "default"), ("---", "---", "---"), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
