"""Filters random problems for head-room and writes tfplace/testing/synthetic.json; prints the acceptance rate.

    python scripts/make_synthetic.py             # the first 64 that pass
    python scripts/make_synthetic.py --keep=1000 --margin=0.2 --out=more.json

The filter is that of `tfplace.testing.synthetic`; the same candidates pass everywhere, as nothing in it looks at a
clock. What passes depends on the placers of this version: run again, all numbers may change.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.scripts import script  # noqa: E402
from tfplace.files import check_writable, write_whole, writing  # noqa: E402
from tfplace.testing import synthetic  # noqa: E402

_KEEP = flags.DEFINE_integer("keep", 64, "How many problems to keep.", 1)
_MARGIN = flags.DEFINE_float("margin", synthetic.MARGIN, "By which fraction the search must be faster.", 0, 1)
_OUT = flags.DEFINE_string("out", str(synthetic.KEPT), "The file to write.")


def main(argv: list[str]) -> None:
    """Tries candidates until enough have passed."""
    with script(argv, stopped="Stopped; nothing was written."):
        _make()


def _make() -> None:
    out = Path(_OUT.value)
    check_writable(out)
    start = time.monotonic()
    numbers: list[int] = []
    rooms: list[float] = []
    passed, seen = Counter(), Counter()
    number = 0
    while len(numbers) < _KEEP.value:
        shape = list(synthetic.SHAPES)[number % len(synthetic.SHAPES)]
        room = synthetic.headroom(synthetic.candidate(number))
        seen[shape] += 1
        if room >= _MARGIN.value:
            passed[shape] += 1
            numbers.append(number)
            rooms.append(round(room, 4))
            print(f"{number:>6}  {shape:<16}{'only the search fits' if room == 1 else f'{room:.1%}'}", flush=True)
        number += 1
    result = {
        "filter": {
            "constructive": synthetic.CONSTRUCTIVE,
            "search": synthetic.SEARCH,
            "evaluations": synthetic.EVALUATIONS,
            "margin": _MARGIN.value,
        },
        "tried": number,
        "numbers": numbers,
        "headroom": rooms,
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()]
    with writing(out):
        write_whole(out, "{\n" + ",\n".join(lines) + "\n}\n")
    for shape in synthetic.SHAPES:
        print(f"{shape:<16}{passed[shape]:>4} of {seen[shape]:>4}")
    fits = sum(room == 1 for room in rooms)
    print(
        f"{len(numbers)} of {number} candidates pass ({len(numbers) / number:.0%}), {fits} because only the search "
        f"fits the memory; {time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    app.run(main)
