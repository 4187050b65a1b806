"""`python -m tfplace` is the command `tfplace`."""

from __future__ import annotations

import sys

from tfplace.cli import main

if __name__ == "__main__":
    sys.exit(main())
