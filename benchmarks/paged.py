"""What benchmarks share whose results are a file beside them, and a table on a page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.scripts import script  # noqa: E402
from tfplace.compare.tables import Page  # noqa: E402
from tfplace.core.files import check_writable, write_whole, writing  # noqa: E402


def run(name, measure, text):
    """The program: measures and keeps what came out, or with --page puts the table of what there is on a page.

    Args:
      name: of the benchmark, and with hyphens of its table.
      measure: the directory of graphs -> results.
      text: results -> the table.
    """
    graphs = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Directory of the graphs.")
    out = flags.DEFINE_string("out", str(ROOT / "benchmarks" / f"{name}.json"), "The results.")
    page = flags.DEFINE_string("page", None, "A page whose table is rewritten; nothing is run.")

    def main(argv):
        with script(argv, stopped="Stopped; nothing was written."):
            path = Path(out.value)
            if page.value:
                Page(page.value, name.replace("_", "-")).write(text(json.loads(path.read_text())))
                return
            check_writable(path)
            found = measure(Path(graphs.value))
            with writing(path):
                write_whole(path, json.dumps(found, indent=1) + "\n")
            print(text(found))

    app.run(main)
