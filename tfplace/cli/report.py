"""`tfplace report`: the report of a plan or placement, made again from its files."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tfplace.cli.click_options import command
from tfplace.cli.console import complain, say
from tfplace.cli.flags import Flags
from tfplace.errors import InputError
from tfplace.option_fields import option
from tfplace.report.progress import Stages

NAME = "tfplace report"


@dataclass(frozen=True, kw_only=True)
class PageFlags(Flags):
    """What is done with the report."""

    title: ClassVar[str] = "Report"

    open: bool = option(False, "Open the report in a browser", kind=bool)
    quiet: bool = option(False, "No progress on stderr", kind=bool)


@command(PageFlags, words="DIRECTORY")
def report_command(flags: PageFlags, directories: Sequence[str]) -> None:
    """Makes report.html of a directory that `tfplace plan --out` or `tfplace place --out` wrote, and prints its path.

    Raises:
      InputError: not one directory, or no such files in it.
      UnwrittenError: the report cannot be written.
    """
    if len(directories) != 1:
        raise InputError(f"{NAME} with {len(directories)} directories", f"one directory, such as `{NAME} out/plan`")
    from tfplace.report.page.directory import write_report  # with numba, which --help can do without

    with Stages(flags.quiet) as stages:
        stages.stage("writing the report")
        path = write_report(Path(directories[0]))
    say(f"{path}\n")
    if flags.open and not webbrowser.open(path.resolve().as_uri()):
        complain(f"no browser was found here; open {path} in one")
