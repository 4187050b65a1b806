"""The claims side by side: what each paper says, what was found, and whether that holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from research.claims import baechi, colocrl, hierarchical, hold_out, post, tarnawski
from research.claims.claims import CLAIMS
from research.claims.criteria import RULE, Finding, Interval, Published
from research.suites.suite_runs import SuiteRun
from research.suites.versus import gain
from research.tables import gdp_table, samples_table, unseen_table
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.tables import table

_MEMORY = "memory of its table"
_BOTH = f"abstract, {_MEMORY}"


def verdicts_table(root: Path) -> str:
    """A line for each number of each claim, and the rule of the verdicts; what was not run is told.

    Args:
      root: of the project, with its committed results.

    Raises:
      InputError: a file of results is of something else.
    """
    found = findings(root)
    lines = [
        ("" if index else said, one.compared, one.published.text, one.here, f"**{one.verdict}**")
        for said, ones in found.items()
        for index, one in enumerate(ones)
    ]
    head = ("claim", "compared", "in the paper", "here: median (least to most), ahead in", "verdict")
    return f"{table(head, lines)}\n\n{RULE}"


def findings(root: Path) -> dict[str, list[Finding]]:
    """Claim, with its paper and year -> what is compared for it."""
    found = {}
    for name, of_rows in OF_ROWS.items():
        claim = CLAIMS[name]
        rows = SuiteRun(claim.suite, root, root / claim.suite.out, lambda: None).rows()
        found[f"`{name}`, {claim.paper.partition(' (')[0]}"] = of_rows(rows)
    found[f"`tarnawski`, {tarnawski.PAPER}"] = _tarnawski(root / "research" / "data" / "dnn_partitioning")
    return found


def _tarnawski(folder: Path) -> list[Finding]:
    results, reference = (_read(folder / f"{name}.json") for name in ("results", "reference"))
    published = Published(0.0, "%", "least", "their data")
    compared = f"{tarnawski.PLACER}'s largest load against the authors' programme's"
    return [Finding(compared, published, _exact(tarnawski.gains(results, reference)))]


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _colocrl(rows: Sequence[CaseResults]) -> list[Finding]:
    theirs = [gained or 0.0 for gained in colocrl.PUBLISHED.values()]
    ahead = (sum(gained > 0 for gained in theirs), len(theirs))
    published = Published(max(theirs), "%", "most", _MEMORY, ahead)
    return [Finding("seq2seq's step against the best baseline's", published, _exact(map(colocrl.gain_of, rows)))]


def _hierarchical(rows: Sequence[CaseResults], ahead: tuple[int, int] = (3, 6)) -> list[Finding]:
    """As in the paper's whole table, of whose six models one is not in the zoo."""
    gains = (colocrl.gain_of(row, hierarchical.LEARNED) for row in rows)
    published = Published(60.6, "%", "most", _BOTH, ahead)
    return [Finding("hierarchical's step against the best baseline's", published, _exact(gains))]


def _hierarchical_two(rows: Sequence[CaseResults]) -> list[Finding]:
    on_two = [gained for gained, gpus in hierarchical.PUBLISHED.values() if gpus == 2]
    return _hierarchical(rows, (sum(gained > 0 for gained in on_two), len(on_two)))


def _samples(rows: Sequence[CaseResults]) -> list[Finding]:
    cells = [float(times.removesuffix("x")) for _, _, times in samples_table.PUBLISHED.values()]
    published = Published(6.1, "x", "most", _BOTH, (sum(times > 1 for times in cells), len(cells)))
    return [
        Finding(
            f"placeto_scratch's evaluations against seq2seq's, to {100 * near:.0f} %",
            published,
            _known(samples_table.times_fewer(row, near) for row in rows),
        )
        for near in samples_table.NEAR
    ]


def _unseen(rows: Sequence[CaseResults]) -> list[Finding]:
    published = Published(-10.0, "%", "least", "a figure", words="almost as well")
    return [_step(rows, unseen_table.ALONE, unseen_table.ITSELF, published)]


def _post(rows: Sequence[CaseResults]) -> list[Finding]:
    published = Published(63.7, "%", "most", "abstract")
    return [
        Finding(
            f"post's step against {other}'s, learning as long",
            published,
            _exact(post.gain_at(row, other, 1.0) for row in rows),
        )
        for other in ("policy_gradient", "seq2seq")
    ]


def _gdp(rows: Sequence[CaseResults]) -> list[Finding]:
    mine, other, expert = gdp_table.GDP, gdp_table.HDP, gdp_table.EXPERT
    return [
        _step(rows, mine, expert, Published(16.0, "%", "mean", "abstract")),
        _step(rows, mine, other, Published(9.2, "%", "mean", "abstract")),
        Finding(
            f"{mine}'s evaluations against {other}'s, to its last step",
            Published(15.0, "x", "mean", "abstract"),
            _known(map(gdp_table.times_as_soon, rows)),
        ),
    ]


def _hold_out(rows: Sequence[CaseResults]) -> list[Finding]:
    published = Published(0.0, "%", "least", "abstract", words="places them")
    return [_step(rows, name, "expert", published) for name in (hold_out.ONCE, hold_out.TUNED)]


def _baechi(rows: Sequence[CaseResults]) -> list[Finding]:
    ran = [row for row in rows if all(map(row.ran, (*baechi.BAECHI, *baechi.LEARNED)))]
    ratios = [
        baechi.measured_s(row, other) / baechi.took_s(row, name)
        for row in ran
        for name in baechi.BAECHI
        for other in baechi.LEARNED
    ]
    sooner = Finding(
        f"{', '.join(baechi.BAECHI)}: seconds against those of learning with steps",
        Published(654.0, "x", "least", "abstract"),
        _exact(ratios),
    )
    limit = Published(-6.2, "%", "least", "abstract")
    return [sooner, *(_step(rows, name, "expert", limit) for name in baechi.BAECHI)]


OF_ROWS: Mapping[str, Callable[[Sequence[CaseResults]], list[Finding]]] = {
    "colocrl": _colocrl,
    "colocrl-k80": _colocrl,
    "hierarchical": _hierarchical,
    "hierarchical-two": _hierarchical_two,
    "placeto-samples": _samples,
    "placeto-unseen": _unseen,
    "post": _post,
    "gdp": _gdp,
    "gdp-hold-out": _hold_out,
    "baechi": _baechi,
}
"""Of each claim what is compared, from its results."""


def _step(rows: Iterable[CaseResults], name: str, other: str, published: Published) -> Finding:
    """One placer's step against another's."""
    gains = (gain(row.median_s(name), row.median_s(other)) for row in rows)
    return Finding(f"{name}'s step against {other}'s", published, _exact(gains))


def _exact(values: Iterable[float | None]) -> list[Interval]:
    return _known(None if value is None else (value, value) for value in values)


def _known(found: Iterable[Interval | None]) -> list[Interval]:
    return [one for one in found if one is not None]
