"""The same as `tfplace place`, for a checkout: python scripts/place.py --model=inception_v3 --topology=4xP100."""

from __future__ import annotations

import sys
from pathlib import Path

from absl import app

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tfplace.cli import main as command
from tfplace.cli.flags import PlaceFlags
from tfplace.cli.scripts import define_flags, given_flags

define_flags(PlaceFlags)


def main(argv: list[str]) -> None:
    """Runs the command with the flags given."""
    sys.exit(command(["place", *given_flags(PlaceFlags), *argv[1:]]))


if __name__ == "__main__":
    app.run(main)
