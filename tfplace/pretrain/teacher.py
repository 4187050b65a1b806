"""The best known placements, to imitate and to compare with."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.files import UNREADABLE, write_whole
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key
from tfplace.errors import InputError
from tfplace.group.merge import merge_units
from tfplace.pretrain.corpus import Entry
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.study.grouped import labels

TEACHER = "auto"


@dataclass(frozen=True, eq=False)
class Known:
    """A placement of a problem: [U] devices, and what it costs."""

    devices: IntArray
    key: Key


def best_known(entry: Entry, problem: Problem, folder: Path, *, groups: int, evaluations: int, seed: int) -> Known:
    """What `auto` finds on groups without learned policies; kept in a file, which is read the next time.

    Args:
      entry: names the file.
      problem: the entry's.
      folder: of files.
      groups: of `tfplace.group.co_placement.merge`, as policies place them; 0 places every unit by itself.
      evaluations: of the search.
      seed: of the search.

    Raises:
      InputError: the file is of another problem or another search, or damaged.
    """
    name = f"{entry.case.graph}@{entry.case.topology}{'-tight' if entry.case.tight else ''}.npz"
    said = f"{problem.fingerprint} {groups} {evaluations} {seed}"
    path = folder / name
    if path.exists():
        try:
            with np.load(path, allow_pickle=False) as data:
                of, known = str(data["said"]), Known(data["devices"], (int(data["over"]), float(data["step_s"])))
        except (OSError, *UNREADABLE) as error:
            raise InputError(f"{path}, which is damaged", "a placement as it was written", "Delete it.") from error
        if of != said:
            raise InputError(f"{path}, of {of}", f"one of {said}", "Name another directory.")
        return known
    label = labels(problem, groups or problem.num_units)
    grouped = merge_units(problem, label)
    search = Search(grouped, Budget(evaluations=evaluations), seed)
    found = search.run(PLACERS[TEACHER](learned=False), TEACHER)
    over, step_s = search.evaluator.key(found)
    devices = found[label]
    data = io.BytesIO()
    np.savez_compressed(data, said=np.array(said), devices=devices.astype(np.int8), over=over, step_s=step_s)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, data.getvalue())
    return Known(devices, (over, step_s))
