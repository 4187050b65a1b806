"""Draws the first screen of a saved plan as an SVG, for README.md.

tfplace plan --model=inception_v3 --topology=4xP100 --budget=60s --out=out/inception_v3
python scripts/make_picture.py out/inception_v3 docs/plan.svg
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from absl import app
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from tfplace import Plan
from tfplace.report.screen import WIDTH, plan_screen

FONTS = "ui-monospace, Menlo, Consolas, monospace"


def main(argv: list[str]) -> None:
    """Reads a plan's directory and writes the picture.

    Args:
      argv: the program, the directory, and the file.
    """
    _, directory, file = argv
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(plan_screen(Plan.load(directory), {}))
    # The picture must not load fonts from other hosts.
    layout = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    layout = layout.replace("Fira Code, monospace", FONTS).replace("font-family: arial", f"font-family: {FONTS}")
    drawn = console.export_svg(
        title="tfplace plan --model=inception_v3 --topology=4xP100",
        theme=SVG_EXPORT_THEME,
        code_format=layout,
        unique_id="plan",
    )
    Path(file).write_text(drawn)


if __name__ == "__main__":
    app.run(main)
