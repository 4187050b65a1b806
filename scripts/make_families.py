"""Extracts the members of the families and keeps them as graphs/FAMILY_INDEX.npz, for training and testing policies.

    python scripts/make_families.py --graphs=graphs              # members whose file is not there yet
    python scripts/make_families.py --graphs=graphs --only=ptb

Each family is built in a process of its own. Prints operations and groups (units that cannot be split) of each member.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace_zoo import families  # noqa: E402

from tfplace.cli.scripts import script  # noqa: E402
from tfplace.errors import UnknownNameError  # noqa: E402

_GRAPHS = flags.DEFINE_string("graphs", None, "Directory for the files.", required=True)
_ONLY = flags.DEFINE_list("only", list(families.names()), "Which families.")
_SEED = flags.DEFINE_integer(
    "seed", 0, "Another one draws other families of the same kinds, for a folder of their own in the directory.", 0
)
_CHILD = flags.DEFINE_bool("child", False, "Build here; used by the script itself.")


def main(argv: list[str]) -> None:
    """One process after the other; stops at the first that fails."""
    with script(argv):
        for family in _ONLY.value:
            if family not in families.names():
                raise UnknownNameError("family", family, families.names())
        for family in _ONLY.value:
            if _CHILD.value:
                _build(family)
                continue
            flags_given = [f"--graphs={_GRAPHS.value}", f"--seed={_SEED.value}", f"--only={family}", "--child"]
            subprocess.run([sys.executable, __file__, *flags_given], check=True)


def _build(family: str) -> None:
    from tfplace.cli.quiet import load_tensorflow

    load_tensorflow(gpus=False)
    import keras

    import tfplace
    from tfplace.group.colocation import colocate

    folder = Path(_GRAPHS.value) / (f"seed{_SEED.value}" if _SEED.value else "")
    folder.mkdir(parents=True, exist_ok=True)
    test = families.split(family, _SEED.value)[1]
    for index in range(families.SIZE):
        path = folder / f"{family}_{index}.npz"
        if path.exists():
            continue
        start = time.monotonic()
        keras.backend.clear_session()
        built = families.member(family, index, seed=_SEED.value)
        graph = tfplace.extract(built.model, built.batch, name=built.name)
        graph.save(path)
        groups = colocate(graph).num_units
        kind = "test" if index in test else "train"
        seconds = time.monotonic() - start
        print(f"{built.name:<12}{kind:<6}{graph.num_ops:>8,} ops{groups:>8,} groups{seconds:>7.1f} s", flush=True)


if __name__ == "__main__":
    app.run(main)
