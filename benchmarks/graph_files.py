"""How large saved graphs and problems are, and how long they take to save and load.

    python benchmarks/graph_files.py --graphs=out/graphs     # seconds; rewrites graph_files.json
    python benchmarks/graph_files.py --page=docs/models.md   # puts the table of graph_files.json there

The graphs are those of `python scripts/make_zoo.py --graphs=out/graphs`. Processor seconds of one thread, the least of
several.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.scripts import script  # noqa: E402
from tfplace.compare.tables import Page, table  # noqa: E402
from tfplace.core.files import check_writable, write_whole, writing  # noqa: E402

NAMES, TOPOLOGY, TIMES = ("rnnlm_2", "inception_v3", "gnmt_4", "amoebanet", "gnmt_8"), "8xP100", 7

_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Directory of the graphs.")
_OUT = flags.DEFINE_string("out", str(ROOT / "benchmarks" / "graph_files.json"), "The results.")
_PAGE = flags.DEFINE_string("page", None, "A page whose table is rewritten; nothing is run.")


def main(argv: list[str]) -> None:
    with script(argv):
        _measure()


def _measure():
    out = Path(_OUT.value)
    if _PAGE.value:
        Page(_PAGE.value, "graph-files").write(text(json.loads(out.read_text())))
        return
    check_writable(out)
    rows = {name: figures(Path(_GRAPHS.value) / f"{name}.npz") for name in NAMES}
    with writing(out):
        write_whole(out, json.dumps(rows, indent=1) + "\n")
    print(text(rows))


def figures(path):
    """Ops, edges, bytes and processor seconds of one saved graph."""
    from tfplace.core.graph import OpGraph
    from tfplace.sources import formulate

    graph = OpGraph.load(path)
    with tempfile.TemporaryDirectory() as folder:
        file, problem = Path(folder) / "graph.npz", Path(folder) / "problem.npz"
        saving = min(_seconds(lambda: graph.save(file)) for _ in range(TIMES))
        loading = min(_seconds(lambda: OpGraph.load(file)) for _ in range(TIMES))
        formulate(graph, TOPOLOGY).save(problem)
        return {
            "ops": graph.num_ops,
            "edges": graph.num_edges,
            "graph_bytes": file.stat().st_size,
            "problem_bytes": problem.stat().st_size,
            "save_s": round(saving, 3),
            "load_s": round(loading, 3),
        }


def _seconds(work):
    begin = time.process_time()
    work()
    return time.process_time() - begin


def text(rows):
    """The table."""
    head = ("graph", "ops", "edges", "graph file", f"problem file ({TOPOLOGY})", "save", "load")
    lines = [
        (
            name,
            f"{row['ops']:,}",
            f"{row['edges']:,}",
            f"{row['graph_bytes'] / 1e3:.0f} kB",
            f"{row['problem_bytes'] / 1e3:.0f} kB",
            f"{row['save_s']:.2f} s",
            f"{row['load_s']:.2f} s",
        )
        for name, row in rows.items()
    ]
    return table(head, lines)


if __name__ == "__main__":
    app.run(main)
