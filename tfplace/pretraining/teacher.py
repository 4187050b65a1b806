"""The best known placements, to imitate and to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key
from tfplace.group.merge import merge_units
from tfplace.local_search.grouped_context import labels
from tfplace.pretraining.artifact_cache import Arrays, kept
from tfplace.pretraining.corpus import Entry
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.search import Search

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

    def find() -> Arrays:
        label = labels(problem, groups or problem.num_units)
        search = Search(merge_units(problem, label), Budget(evaluations=evaluations), seed)
        found = search.run(PLACERS[TEACHER](learned=False), TEACHER)
        over, step_s = search.evaluator.key(found)
        return {"devices": found[label].astype(np.int8), "over": np.array(over), "step_s": np.array(step_s)}

    of = f"{problem.fingerprint} {groups} {evaluations} {seed}"
    known = kept(folder / name, of, find, ("devices", "over", "step_s"))
    return Known(known["devices"].astype(np.int32), (int(known["over"]), float(known["step_s"])))
