"""The same as `tfplace place`, for a checkout: python scripts/place.py --model=inception_v3 --topology=4xP100."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tfplace.cli import main

if __name__ == "__main__":
    sys.exit(main(["place", *sys.argv[1:]]))
