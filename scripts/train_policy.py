"""Trains a policy on many graphs, so that it places graphs it has never seen.

    python scripts/train_policy.py --policy=placeto --graphs=graphs --out=out/placeto
    python scripts/train_policy.py --policy=placeto --graphs=graphs --without=ptb --out=out/no_ptb --weights=no_ptb.npz

The graphs are those of scripts/make_families.py, FAMILY_INDEX.npz, and of scripts/make_zoo.py --graphs, NAME.npz. First
`auto` finds the best known placement of each on each topology, in groups; the policy imitates those of the graphs to
learn from, then goes on by reinforcement. Every so often it is examined on the graphs that are held out: step seconds
over those of the best known placement, of what comes first (`once`), of the best with draws, and of a mean draw;
simulated. The same command goes on where it was stopped.

    python scripts/train_policy.py --policy=placeto --graphs=graphs --out=out/anew --examine_only=placeto.npz

examines weights that were trained by an earlier version: the command in their card, with --examine_only. It needs the
graphs that are held out, and changes nothing but the card.
"""

from __future__ import annotations

import dataclasses
import functools
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.quiet import load_tensorflow  # noqa: E402
from tfplace.cli.scripts import command, extracted, given, script  # noqa: E402
from tfplace.comparison.cells import Case  # noqa: E402
from tfplace.core.topology import Topology  # noqa: E402
from tfplace.engines.choose import FORM, chosen_engine  # noqa: E402
from tfplace.errors import UnknownNameError  # noqa: E402
from tfplace.files import check_writable, write_whole  # noqa: E402
from tfplace.learned.training.pretrained import Pretrained  # noqa: E402
from tfplace.pretraining.corpus import Entry, held_out  # noqa: E402
from tfplace.registry import Registry  # noqa: E402
from tfplace.report.progress import Stages  # noqa: E402
from tfplace.version import VERSION  # noqa: E402

if TYPE_CHECKING:
    from tfplace.pretraining.student import Teaching
    from tfplace.pretraining.trainable import Trainable

_POLICY = flags.DEFINE_enum("policy", "placeto", ["placeto", "gdp"], "Which one.")
_GRAPHS = flags.DEFINE_string("graphs", None, "Directory of extracted graphs.", required=True)
_FAMILIES = flags.DEFINE_list("families", ["cifar10", "nmt", "ptb"], "Whose members are learned from and held out.")
_WITHOUT = flags.DEFINE_list("without", [], "Families of which everything is held out.")
_ZOO = flags.DEFINE_list("zoo", [], "Models of the zoo as well; every fourth by SHA-256 is held out.")
_TOPOLOGIES = flags.DEFINE_list("topologies", ["2xP100", "4xP100"], "Presets to learn on, from simple to hard.")
_UNSEEN = flags.DEFINE_list("unseen", [], "Presets on which held-out graphs are tried, and none is learned from.")
_IMITATE = flags.DEFINE_integer("imitate", 2000, "Updates that imitate.", 0)
_REINFORCE = flags.DEFINE_integer("reinforce", 4000, "Updates after these, by reinforcement.", 0)
_IMITATE_RATE = flags.DEFINE_float("imitate_rate", 3e-3, "Of Adam at first, in imitation.", 0.0)
_REINFORCE_RATE = flags.DEFINE_float("reinforce_rate", 5e-4, "The same of reinforcement.", 0.0)
_BATCH = flags.DEFINE_integer("batch", 2, "Graphs an update learns from.", 1)
_CURRICULUM = flags.DEFINE_bool("curriculum", True, "Whether topologies come one after the other.")
_EXAMINE = flags.DEFINE_integer("examine", 500, "Updates between examinations.", 1)
_EXAMINE_ONLY = flags.DEFINE_string(
    "examine_only", None, "Weights to examine instead of training; give the flags of the command in their card."
)
_TEACHER = flags.DEFINE_integer("teacher", 10_000, "Evaluations that `auto` has for a best known placement.", 1)
_TEACHER_GROUPS = flags.DEFINE_integer("teacher_groups", 256, "What it places; 0: every unit by itself.", 0)
_ENGINE = flags.DEFINE_string("engine", "processes:2", f"Where the work is done: {FORM}.")
_SEED = flags.DEFINE_integer("seed", 0, "Of everything random.", 0)
_OUT = flags.DEFINE_string("out", None, "Directory of the run, with best known placements in it.", required=True)
_KNOWN = flags.DEFINE_string("known", None, "Directory of best known placements instead, to share them.")
_ABLATE = flags.DEFINE_multi_enum("ablate", [], ["attention", "superposition"], "Parts that gdp is to do without.")
_DRAWN = flags.DEFINE_integer("drawn", None, "Placements that gdp draws side by side in reinforcement.", 2)
_WEIGHTS = flags.DEFINE_string("weights", None, "The file for the weights, and .md its card; by default in the run's.")

_FILES = ("graphs", "out", "known", "weights", "engine")
_PUPILS = {
    "gdp": "tfplace.pretraining.trainable_gdp:TrainableGdp",
    "placeto": "tfplace.pretraining.trainable_placeto:TrainablePlaceto",
}


def main(argv: list[str]) -> None:
    """Trains, and writes the weights with their card."""
    with script(argv):
        _run()


def _run() -> None:
    load_tensorflow(gpus=False)
    from tfplace.pretraining.card import card_text

    path = Path(_WEIGHTS.value or Path(_OUT.value) / "weights.npz")
    if path.suffix != ".npz":
        raise SystemExit(f"--weights={path}; expected a file that ends in .npz, beside which its card is written.")
    check_writable(path)  # before anything takes long
    with Stages(quiet=False) as stages:
        trained = _examined(stages) if _EXAMINE_ONLY.value else _trained(stages)
    trained.save(path)
    write_whole(path.with_suffix(".md"), card_text(trained))
    print(path)


def _trained(stages: Stages) -> Pretrained:
    from tfplace.pretraining.training import Course, Training

    course = Course(
        imitate=_IMITATE.value,
        reinforce=_REINFORCE.value,
        batch=_BATCH.value,
        imitate_rate=_IMITATE_RATE.value,
        reinforce_rate=_REINFORCE_RATE.value,
        curriculum=_CURRICULUM.value,
        examine=_EXAMINE.value,
        seed=_SEED.value,
    )
    training = Training(
        _entries(),
        _pupil(),
        _POLICY.value,
        course=course,
        teaching=_teaching(),
        folder=Path(_OUT.value),
        engine=chosen_engine(_ENGINE.value),
        shown=_Shown(stages),
    )
    try:
        learned = training.go()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Stopped after {training.update} updates; run the same command again to resume."
        ) from None
    made = {
        "command": command("scripts/train_policy.py", _FILES),
        "tfplace": VERSION,
        "python": platform.python_version(),
    }
    return dataclasses.replace(learned, card={**made, **learned.card})


def _examined(stages: Stages) -> Pretrained:
    from tfplace.pretraining.examination import examined_anew

    return examined_anew(
        Pretrained.load(_EXAMINE_ONLY.value, _POLICY.value),
        _entries(),
        _pupil(),
        teaching=_teaching(),
        engine=chosen_engine(_ENGINE.value),
        shown=_Shown(stages),
    )


def _pupil() -> Callable[[], Trainable[Any]]:
    return functools.partial(Registry("policy", _PUPILS)[_POLICY.value], seed=_SEED.value, **_settings())


def _teaching() -> Teaching:
    from tfplace.pretraining.student import Teaching

    known = Path(_KNOWN.value or Path(_OUT.value) / "known").absolute()  # workers may be elsewhere
    return Teaching(known, groups=_TEACHER_GROUPS.value, evaluations=_TEACHER.value)


def _settings() -> dict[str, Any]:
    """Of the policy, where they are not its own."""
    ours = [given(f) for f in (flags.FLAGS["ablate"], flags.FLAGS["drawn"]) if f.value]
    if not ours:
        return {}
    if _POLICY.value != "gdp":
        raise SystemExit(f"{' '.join(ours)} with --policy={_POLICY.value}; only gdp has that.")
    from tfplace.learned.policies.gdp import GdpSettings

    settings = GdpSettings(**dict.fromkeys(_ABLATE.value, False))
    train = dataclasses.replace(settings.train, batch=_DRAWN.value or settings.train.batch)
    return {"settings": dataclasses.replace(settings, train=train)}


class _Shown:
    """What the training says, on the terminal."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self.progress = stages.progress

    def examined(self, update: int, exams: Mapping[str, Mapping[str, float]]) -> None:
        for name, row in exams.items():
            numbers = ", ".join(f"{key} {value:.3f}" for key, value in row.items())
            self._stages.note(f"after {update} updates, {name}: {numbers}")


def _entries() -> list[Entry]:
    """Every graph on every topology; those that are held out also where nothing is learned."""
    from tfplace_zoo import families, zoo

    graphs = []
    for family in dict.fromkeys([*_FAMILIES.value, *_WITHOUT.value]):
        if family not in families.names():
            raise SystemExit(f"There is no family {family!r}; there are {', '.join(families.names())}.")
        test = range(families.SIZE) if family in _WITHOUT.value else families.split(family)[1]
        graphs += [(f"{family}_{i}", family, i in test) for i in range(families.SIZE)]
    tried = held_out(zoo.names())
    for name in _ZOO.value:
        if name not in zoo.names():
            raise UnknownNameError("model", name, zoo.names())
        graphs.append((name, "zoo", name in tried))
    learned = dict.fromkeys(_TOPOLOGIES.value)
    unseen = [topology for topology in dict.fromkeys(_UNSEEN.value) if topology not in learned]
    for topology in (*learned, *unseen):
        Topology.preset(topology)  # says which there are
    entries = []
    for name, family, test in graphs:
        needed = test or not _EXAMINE_ONLY.value
        path = extracted(_GRAPHS.value, name) if needed else Path(_GRAPHS.value, f"{name}.npz")
        topologies = [*learned, *(unseen if test else [])]
        entries += [Entry(path, Case(name, topology), family, test) for topology in topologies]
    return entries


if __name__ == "__main__":
    app.run(main)
