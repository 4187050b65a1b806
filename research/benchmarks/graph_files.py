"""How large saved graphs and problems are, and how long they take to save and load.

    python -m research.benchmarks.graph_files --graphs=out/graphs     # seconds; rewrites graph_files.json
    python -m research.benchmarks.graph_files --page=docs/reference/models.md   # puts its table there

The graphs are those of `python scripts/make_zoo.py --graphs=out/graphs`. Processor seconds of one thread, the least of
several.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from research.benchmarks import common
from tfplace.comparison.tables import table

NAMES, TOPOLOGY, TIMES = ("rnnlm_2", "inception_v3", "gnmt_4", "amoebanet", "gnmt_8"), "8xP100", 7


def measure(graphs):
    """Graph -> its figures."""
    return {name: figures(graphs / f"{name}.npz") for name in NAMES}


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
    common.run("graph_files", measure, text)
