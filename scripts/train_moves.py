"""Trains what tells which moves are worth a try, for the placer `placeto`, on graphs it never places again.

    python scripts/train_moves.py --graphs=graphs --out=moves.npz         # half an hour on two processors

The graphs are those of scripts/make_families.py, FAMILY_INDEX.npz, each on one of the topologies in turn. Searches on
the graphs to learn from write down what is known of each move they try, and what becomes of it; a small network learns
from that, and chooses for the next round of searches. Then it is tried on moves on the graphs that are held out. Steps
are simulated. What searches wrote down is kept, so that the same command goes on where it was stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import platform
import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.quiet import load_tensorflow  # noqa: E402
from tfplace.cli.scripts import RESUMABLE, command, extracted, script  # noqa: E402
from tfplace.comparison.cells import Case  # noqa: E402
from tfplace.core.topology import Topology  # noqa: E402
from tfplace.engines.choose import FORM, chosen_engine  # noqa: E402
from tfplace.files import check_writable, write_whole  # noqa: E402
from tfplace.pretraining.corpus import Entry  # noqa: E402
from tfplace.report.progress import Stages  # noqa: E402
from tfplace.version import VERSION  # noqa: E402

_GRAPHS = flags.DEFINE_string("graphs", None, "Directory of extracted graphs.", required=True)
_FAMILIES = flags.DEFINE_list("families", ["cifar10", "nmt", "ptb"], "Whose members are learned from and held out.")
_TOPOLOGIES = flags.DEFINE_list("topologies", ["2xP100", "4xP100", "2xV100-PCIe+2xP100"], "Presets, in turn.")
_EVALUATIONS = flags.DEFINE_integer("evaluations", 1500, "Placements of each search; there are two a graph.", 1)
_ROUNDS = flags.DEFINE_integer("rounds", 2, "Of searches.", 1)
_EPOCHS = flags.DEFINE_integer("epochs", 40, "How often the network sees each move.", 1)
_ENGINE = flags.DEFINE_string("engine", "processes:2", f"Where the work is done: {FORM}.")
_SEED = flags.DEFINE_integer("seed", 0, "Of everything random.", 0)
_SEARCHES = flags.DEFINE_string("searches", None, "Directory of what searches wrote down; by default beside --out.")
_OUT = flags.DEFINE_string("out", None, "The file for the weights, and .md its card.", required=True)

_FILES = ("graphs", "out", "searches", "engine")


def main(argv: list[str]) -> None:
    """Trains, and writes the weights with their card."""
    with script(argv, stopped=RESUMABLE):
        _train()


def _train() -> None:
    path = Path(_OUT.value)
    if path.suffix != ".npz":
        raise SystemExit(f"--out={path}; expected a file that ends in .npz, beside which its card is written.")
    check_writable(path)  # before anything takes long
    entries = _entries()
    searches = (Path(_SEARCHES.value) if _SEARCHES.value else path.with_suffix(".searches")).absolute()
    check_writable(searches / path.name)
    load_tensorflow(gpus=False)
    from tfplace.pretraining.card import moves_card_text
    from tfplace.pretraining.move_lessons import MoveSchool
    from tfplace.pretraining.move_training import MoveCourse, train

    course = MoveCourse(_EVALUATIONS.value, _ROUNDS.value, epochs=_EPOCHS.value, seed=_SEED.value)
    engine = chosen_engine(_ENGINE.value)
    make = functools.partial(MoveSchool, entries, course.evaluations, searches)
    with contextlib.closing(engine.start(make)) as workers, Stages(quiet=False) as stages:
        learned = train(entries, course, workers, stages.progress)
    made = {"command": command("scripts/train_moves.py", _FILES), "tfplace": VERSION}
    made |= {"python": platform.python_version()}
    trained = dataclasses.replace(learned, card={**made, **learned.card})
    trained.save(path)
    write_whole(path.with_suffix(".md"), moves_card_text(trained))
    print(path)


def _entries() -> list[Entry]:
    """Every graph, on one topology each."""
    from tfplace_zoo import families

    for topology in _TOPOLOGIES.value:
        Topology.preset(topology)  # says which there are
    entries = []
    for family in dict.fromkeys(_FAMILIES.value):
        if family not in families.names():
            raise SystemExit(f"There is no family {family!r}; there are {', '.join(families.names())}.")
        test = families.split(family)[1]
        for index in range(families.SIZE):
            name, topology = f"{family}_{index}", _TOPOLOGIES.value[index % len(_TOPOLOGIES.value)]
            entries.append(Entry(extracted(_GRAPHS.value, name), Case(name, topology), family, index in test))
    return entries


if __name__ == "__main__":
    app.run(main)
