"""A model card: what was trained, on what, how it does, and what not to expect, as a page."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from tfplace.comparison.tables import table
from tfplace.learned.training.pretrained import Pretrained

_COLUMNS = {
    "once": "at once",
    "best": "best with draws",
    "drawn": "a mean draw",
}

_MOVES = ("better", "quarter_better", "quarter_gained")


def card_text(trained: Pretrained) -> str:
    """The page of a file of weights."""
    card = trained.card
    course, teaching = (card["config"][name] for name in ("course", "teaching"))
    numbers = sum(value.size for value in trained.values)
    lines = [
        f"# `{trained.policy}`: a policy that was trained beforehand",
        f'{numbers:,} parameters. How it works: `help(tfplace.registry.PLACERS["{trained.policy}"])`.',
        "## Training",
        f"    {card['command']}",
        "and `--graphs=DIR`, where the graphs are, and `--out=DIR`, for the run.",
        f"With tfplace {card['tfplace']} and Python {card['python']}; seed {course['seed']}. {course['imitate']:,} "
        f"updates imitated the best placements that {_search(teaching)}, {course['reinforce']:,} reinforced what "
        f"turned out well; {course['batch']} graphs each.",
        table(("graphs", "learned from", "held out"), [_counts(name, row) for name, row in card["graphs"].items()]),
        f"Fingerprints of all {len(card['fingerprints'])} graphs are in the file; together they are "
        f"`{_digest(card['fingerprints'])}`.",
        "## On graphs that were held out",
        _examined(card),
        _exams(card["exams"]),
        "## Limits",
        "Trained on the graphs and boxes above alone, on analytic costs; elsewhere it may be far off, and `auto`, "
        "which takes longer, is the better choice. Memory was ample there: where it is short, list scheduling moves "
        "what finds no room. It places groups or units as the simulator sees them; nothing was measured.",
    ]
    return "\n\n".join(lines) + "\n"


def moves_card_text(trained: Pretrained) -> str:
    """The page of a file of weights of `tfplace.learned.training.learned_move_selector`."""
    card = trained.card
    course, numbers = card["config"], sum(value.size for value in trained.values)
    exams = [
        (family, f"{row['moves']:,}", *(f"{100 * row[key]:.0f} %" for key in _MOVES))
        for family, row in card["exams"].items()
    ]
    lines = [
        "# `moves`: which moves are worth a try",
        f"{numbers:,} parameters. `placeto` has them for its moves: "
        "`help(tfplace.learned.training.learned_move_selector)`.",
        "## Training",
        f"    {card['command']}",
        "and `--graphs=DIR`, where the graphs are, and `--out=FILE`, for the weights.",
        f"With tfplace {card['tfplace']} and Python {card['python']}; seed {course['seed']}. {card['moves']:,} moves, "
        f"tried in {course['rounds']} rounds of searches with {course['evaluations']:,} evaluations: two a graph, "
        "from what `placeto` places without moves and from everything on one device. Of the first round moves were "
        "drawn, later ones chose with what had been learned so far, but for three in ten.",
        table(("graphs", "learned from", "held out"), [_counts(name, row) for name, row in card["graphs"].items()]),
        f"Fingerprints of all {len(card['fingerprints'])} graphs are in the file; together they are "
        f"`{_digest(card['fingerprints'])}`.",
        "## On graphs that were held out",
        "Moves that searches drew there, how many made the step shorter, and what part of these, and of all that they "
        "gained, is in the quarter of which most was expected. Simulated.",
        table(("", "moves", "shorter", "in the quarter", "gained in the quarter"), exams),
        "## Limits",
        "Trained on the graphs and boxes above alone, on analytic costs and with ample memory, of which it is told "
        "nothing. What a search comes to with it is told in docs/research/pretrained.md.",
    ]
    return "\n\n".join(lines) + "\n"


def _examined(card: Mapping[str, Any]) -> str:
    """By what; a card that says no more was written by the version that trained."""
    anew, known, by = card.get("examined"), "the best known placement (as above)", ""
    if anew and anew["teaching"] != card["config"]["teaching"]:
        known = f"the best placement that {_search(anew['teaching'])}"
    if anew:
        by = f"Examined anew with tfplace {anew['tfplace']} and Python {anew['python']} (`--examine_only`). "
    return (
        f"{by}Simulated step seconds over those of {known}, geometric means. Below 1 the policy is better than that "
        "search was."
    )


def _search(teaching: Mapping[str, Any]) -> str:
    return f"`auto` found with {teaching['evaluations']:,} evaluations on {_groups(teaching['groups'])}"


def _groups(count: int) -> str:
    return f"{count} groups" if count else "single units"


def _counts(name: str, row: dict[str, int]) -> tuple[str, ...]:
    return name, str(row["learned"]), str(row["held_out"])


def _exams(exams: dict[str, dict[str, Any]]) -> str:
    if not exams:
        return "None were held out."
    keys = [key for key in _COLUMNS if key in next(iter(exams.values()))]
    rows = [(name, *(f"{row[key]:.3f}" for key in keys)) for name, row in exams.items()]
    return table(("", *(_COLUMNS[key] for key in keys)), rows)


def _digest(fingerprints: dict[str, str]) -> str:
    return hashlib.sha256("".join(f"{k} {v}\n" for k, v in sorted(fingerprints.items())).encode()).hexdigest()[:16]
