"""Click commands whose options are made from dataclass fields; see `tfplace.option_fields`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from tfplace.cli.console import say
from tfplace.errors import InputError, UnknownNameError
from tfplace.option_fields import Option, Options

EXIT_CODES = "Exit codes: 0 done, 1 internal error, 2 bad input, 130 interrupted, 141 unread."
PLACING_CODES = "Exit codes: 0 placed, 1 internal error, 2 bad input, 3 no placement fits, 130 interrupted, 141 unread."

_HELP = ("--help", "-h")
_ALSO_HELP = ("--helpfull", "--helpshort")
"""What absl's programs understand."""
_TRUTHS = {"true": True, "t": True, "1": True, "yes": True, "false": False, "f": False, "0": False, "no": False}

_Flags = TypeVar("_Flags", bound=Options)


def command(
    options: type[_Flags], *, words: str = "", codes: str = EXIT_CODES
) -> Callable[[Callable[..., None]], Command]:
    """Makes a function the command of its name, `place_command` that of `tfplace place`.

    Args:
      options: the flags; the function gets an instance, and then what is no flag.
      words: what stands for what is no flag; empty refuses it.
      codes: the last line of the help. Its first is that of the function's docstring.
    """

    def make(run: Callable[..., None]) -> Command:
        return Command(run, options, words, codes)

    return make


class Command(click.Command):
    """A command of `tfplace`; see `command`."""

    def __init__(self, run: Callable[..., None], options: type[Options], words: str, codes: str) -> None:
        self._options = {declared.name: declared for declared in options.declared().values() if declared.flag}
        self._words = words
        self._sections: dict[str, list[str]] = {}
        for section, own in options.sections().items():
            self._sections.setdefault(section.title, []).extend(declared.name for declared in own if declared.flag)

        def callback(**given: Any) -> None:
            found = {name: read(self._options[name], raw) for name, raw in given.items() if raw not in (None, ())}
            run(options(**found), *(() if not words else (click.get_current_context().args,)))

        super().__init__(
            run.__name__.removesuffix("_command"),
            params=[_Flag(declared) for declared in self._options.values()],
            callback=callback,
            help=(run.__doc__ or "").partition("\n")[0],
            epilog=codes,
            context_settings={
                "max_content_width": 100,
                "help_option_names": _HELP,
                "allow_extra_args": True,
                "token_normalize_func": lambda name: name.replace("-", "_"),
            },
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the flags; also `--json=false`, which click does not know.

        Raises:
          InputError: a flag that is unknown or lacks its value, or a word that is no flag.
        """
        known = [f"--{declared.flag}" for declared in self._options.values()]
        switches = {f"--{one.flag}" for one in self._options.values() if one.spec.kind is bool}
        see = f"See {ctx.command_path} --help."
        try:
            rest = super().parse_args(ctx, list(_normal(args, switches)))
        except click.NoSuchOption as error:
            raise UnknownNameError(f"flag of `{ctx.command_path}`", error.option_name, known) from error
        except click.UsageError as error:
            raise InputError(error.format_message(), f"flags of `{ctx.command_path}`", see) from error
        if rest and not self._words and not ctx.resilient_parsing:
            model = "model" in self._options and ctx.params["model"] is None
            raise InputError(" ".join(map(repr, rest)), f"--model={rest[0]}" if model else "flags only", see)
        return rest

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The flag `--help`, which writes as results are written."""
        return help_option()

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """What follows the command's name."""
        return [*([self._words] if self._words else []), *(["[FLAGS]"] if self._options else [])]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the flags, by the class that declares them."""
        records = {param.name: param.get_help_record(ctx) for param in self.params}
        for title, names in self._sections.items():
            rows = [record for name in names if (record := records.get(name)) is not None]
            if rows:
                with formatter.section(title or "Flags"):
                    formatter.write_dl(rows)


class _Flag(click.Option):
    """A flag whose help is the declared one. Its text is read by `read`, when all flags are known."""

    def __init__(self, declared: Option) -> None:
        self._declared, flag, spec = declared, declared.flag, declared.spec
        if spec.kind is bool:
            super().__init__([declared.name, f"--{flag}/--no{flag}"], default=None)
        else:
            super().__init__([declared.name, f"--{flag}"], default=None, multiple=spec.repeated, type=click.STRING)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """The flag, and what it does with its default."""
        one = self._declared
        spec = one.spec
        default = one.unset or ("" if one.default is False else shown(one.default))
        more = " Repeatable." if spec.repeated else ""
        switch = f"--[no]{one.flag}" if one.default is True else f"--{one.flag}"
        name = switch if spec.kind is bool else f"--{one.flag}={spec.form or one.name.upper()}"
        return name, f"{spec.help}{f' (default: {default})' if default else ''}.{more}"


class LazyGroup(click.Group):
    """Commands that are loaded when they are called.

    Args:
      commands: name -> (module, what the command does).
      more: what `click.Group` takes.
    """

    def __init__(self, commands: Mapping[str, tuple[str, str]], **more: Any) -> None:
        super().__init__(**more, context_settings={"help_option_names": _HELP, "max_content_width": 100})
        self._lazy = commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them, loaded.

        Raises:
          UnknownNameError: there is none of that name.
        """
        if cmd_name not in self._lazy:
            raise UnknownNameError("command", cmd_name, self._lazy)
        found = getattr(importlib.import_module(self._lazy[cmd_name][0]), f"{cmd_name}_command")
        assert isinstance(found, click.Command)
        return found

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The flag `--help`, which writes as results are written."""
        return help_option()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes what there is, without loading it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, does) for name, (_, does) in self._lazy.items()])


def help_option() -> click.Option:
    """The flag `--help`."""
    return told_option(_HELP, lambda ctx: f"{ctx.get_help()}\n", "Show this text")


def told_option(names: Sequence[str], text: Callable[[click.Context], str], what: str) -> click.Option:
    """A flag that has a text written, and ends the command."""

    def tell(ctx: click.Context, param: click.Parameter, given: bool) -> None:
        if given and not ctx.resilient_parsing:
            say(text(ctx))
            ctx.exit()

    return click.Option(names, is_flag=True, is_eager=True, expose_value=False, callback=tell, help=what)


def _normal(args: Sequence[str], switches: Iterable[str]) -> Iterable[str]:
    """Arguments with `--json` for `--json=true`, `--nojson` for `--json=false`, and one word for help."""
    for i, arg in enumerate(args):
        if arg == "--":
            yield from args[i:]
            return
        name, given, text = arg.partition("=")
        name = f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name
        if name in _ALSO_HELP:
            yield _HELP[0]
            continue
        if name.startswith("--no_") and f"--{name[5:]}" in switches:
            yield f"--no{name[5:]}"
            continue
        if name not in switches or not given:
            yield arg
        elif text.lower() not in _TRUTHS:
            raise InputError(arg, f"{name}=true or {name}=false")
        else:
            yield name if _TRUTHS[text.lower()] else f"--no{name[2:]}"


def shown(default: Any) -> str:
    """A default as it is written on a command line."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def read(declared: Option, raw: Any) -> Any:
    """What the text of a flag means, or the texts of one that was repeated.

    Raises:
      InputError: it means nothing.
    """
    spec, flag = declared.spec, f"--{declared.flag}"
    if spec.read is not None:
        return spec.read(flag, raw)
    if spec.choices and raw not in spec.choices:
        raise InputError(f"{flag}={raw}", f"one of {', '.join(spec.choices)}")
    if spec.kind in (int, float):
        return _number(declared, flag, raw)
    if spec.kind is tuple:
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    if spec.kind is dict:
        return once(flag, pairs(flag, raw, spec.form))
    return raw


def _number(declared: Option, flag: str, raw: str) -> int | float:
    spec = declared.spec
    least = "" if spec.least is None else f" of at least {spec.least}"
    most = "" if spec.most is None else f"{' and' if least else ' of'} at most {spec.most}"
    expected = f"a {'whole ' if spec.kind is int else ''}number{least}{most}"
    try:
        number: int | float = spec.kind(raw)
    except ValueError as error:
        raise InputError(f"{flag}={raw}", expected) from error
    if (spec.least is not None and number < spec.least) or (spec.most is not None and number > spec.most):
        raise InputError(f"{flag}={raw}", expected)
    return number


def pairs(flag: str, texts: Iterable[str], form: str, *, first: bool = False) -> list[tuple[str, str]]:
    """Splits "left=right" at the last "=", or at the first.

    Raises:
      InputError: there is no "=", or nothing on one of its sides.
    """
    out = []
    for text in texts:
        left, _, right = text.partition("=") if first else text.rpartition("=")
        if not left or not right:
            raise InputError(f"{flag}={text}", f"{flag}={form}")
        out.append((left, right))
    return out


def once(flag: str, given: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Pairs of a flag that says one thing of each left side.

    Raises:
      InputError: two of one left side differ.
    """
    out: dict[str, str] = {}
    for left, right in given:
        if out.setdefault(left, right) != right:
            raise InputError(f"{flag}={left}={out[left]} and {flag}={left}={right}", "one of the two")
    return out
