"""Rewrites the tables of options in docs/ from the options as they are declared: python scripts/make_docs.py."""

from __future__ import annotations

import sys
from pathlib import Path

from absl import app

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.option_tables import PAGES, written  # noqa: E402
from tfplace.cli.scripts import script  # noqa: E402


def main(argv: list[str]) -> None:
    """Rewrites every page."""
    with script(argv):
        for page in PAGES:
            path = ROOT / page
            path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
