"""Results of experiments as tables in Markdown, which a terminal shows as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfplace.errors import InputError
from tfplace.files import write_whole, writing


def fidelity_tables(results: Mapping[str, Any]) -> str:
    """Agreement by graph; the placements that decide (best single worker, simulated best, plain TensorFlow); options.

    Args:
      results: what `research/measure_fidelity.py` writes.
    """
    experiments = results["experiments"]
    options = list(experiments[0]["options"])
    tables = (
        agreement_table(results),
        speed_table(results),
        table(("median error, Spearman", *options), (_by_option(e, options) for e in experiments)),
    )
    return "\n\n".join(tables)


def agreement_table(results: Mapping[str, Any]) -> str:
    """How well measured steps were predicted, by graph."""
    return table(_AGREEMENT, map(_agreement, results["experiments"]))


_BEGIN = "<!-- tables: "
_AGREEMENT = (
    "graph",
    "ops",
    "placements",
    "Spearman",
    "of the measurement's halves",
    "Kendall",
    "median error",
    "90th percentile",
    "bias",
    "top-1 regret",
)
_SPEED = ("graph", "simulated best", "simulated", "measured", "best single, measured", "plain TensorFlow, measured")


def speed_table(results: Mapping[str, Any]) -> str:
    """The placements that decide: simulated best, best single worker, plain TensorFlow on the same cores."""
    return table(_SPEED, map(_speed, results["experiments"]))


def replace_between(page: str, name: str, tables: str) -> str:
    """A page with what is between `<!-- tables: name -->` and `<!-- end -->` replaced.

    Raises:
      InputError: the page has no such place, or another place begins before it ends.
    """
    begin, end = f"{_BEGIN}{name} -->", "<!-- end -->"
    before, found, rest = page.partition(begin)
    old, closed, after = rest.partition(end)
    if not found or not closed or _BEGIN in old:
        raise InputError(f"a page without {begin} and {end}", "both, around the tables")
    return f"{before}{begin}\n\n{tables}\n\n{end}{after}"


class Page:
    """The place of tables on a page.

    Args:
      path: of the page.
      name: of the tables.

    Raises:
      InputError: there is no such page, or no place in it for them.
    """

    def __init__(self, path: str | Path, name: str) -> None:
        self._path = Path(path)
        if not self._path.exists():
            raise InputError(f"page {path}, which is not there", "a page whose tables are to be rewritten")
        text = self._path.read_text(encoding="utf-8")
        self._name = name
        replace_between(text, name, "")

    def write(self, tables: str) -> None:
        """Replaces what is there.

        Raises:
          UnwrittenError: the operating system refused.
        """
        with writing(self._path):
            write_whole(self._path, replace_between(self._path.read_text(encoding="utf-8"), self._name, tables))


def _agreement(e: Mapping[str, Any]) -> tuple[str, ...]:
    a = e["agreement"]
    return (
        e["graph"],
        f"{e['ops']:,}",
        str(a["placements"]),
        f"{a['spearman']:.3f}",
        f"{e['split_half']:.3f}",
        f"{a['kendall']:.3f}",
        *(f"{100 * a[key]:.1f} %" for key in ("median_error", "p90_error")),
        f"{100 * a['bias']:+.1f} %",
        f"{100 * a['regret']:.1f} %",
    )


def _speed(e: Mapping[str, Any]) -> tuple[str, ...]:
    rows = e["placements"]
    found = min(rows, key=lambda row: float(row["simulated_ratio"]))
    single = min(float(row["measured_ratio"]) for row in rows if row["name"].startswith("single "))
    return (
        e["graph"],
        found["name"],
        *(f"{found[key]:.3f}" for key in ("simulated_ratio", "measured_ratio")),
        f"{single:.3f}",
        f"{e['plain_tensorflow_ratio']:.3f}",
    )


def _by_option(e: Mapping[str, Any], options: Sequence[str]) -> tuple[str, ...]:
    found = [e["options"][name] for name in options]
    return (e["graph"], *(f"{100 * a['median_error']:.1f} %, {a['spearman']:.3f}" for a in found))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, with its columns aligned."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    texts = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return "\n".join([texts[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *texts[1:]])
