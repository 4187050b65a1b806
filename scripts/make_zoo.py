"""Builds every model of the zoo and writes models/tfplace_zoo/zoo_facts.json, which `tfplace models` shows.

    python scripts/make_zoo.py                             # models that are new or whose parameters changed
    python scripts/make_zoo.py --only=gnmt_8 --nofacts     # anew, but facts stay as they are
    python scripts/make_zoo.py --again --graphs=graphs     # all of them, and graphs/NAME.npz of each

Each model is built in a process of its own, one after the other, so that none sees another's names or memory; facts are
written after each. `tfplace place --model=graphs/NAME.npz` then needs no TensorFlow.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace_zoo import zoo  # noqa: E402

from tfplace.cli.scripts import script  # noqa: E402
from tfplace.errors import UnknownNameError  # noqa: E402
from tfplace.files import write_whole  # noqa: E402

_ONLY = flags.DEFINE_list("only", [], "Names of the models to build, whether known or not; by default all.")
_AGAIN = flags.DEFINE_bool("again", False, "Build also what has not changed.")
_GRAPHS = flags.DEFINE_string("graphs", None, "Directory for NAME.npz of each model built; by default none is kept.")
_FACTS = flags.DEFINE_bool("facts", True, "Whether to write models/tfplace_zoo/zoo_facts.json.")
_CHILD = flags.DEFINE_string("child", None, "Build this one and print its facts; used by the script itself.")


def main(argv: list[str]) -> None:
    """Builds what is wanted; a model that fails is reported, and the others are still built."""
    with script(argv):
        _make()


def _make() -> None:
    if _CHILD.value:
        print(json.dumps(_build(_CHILD.value)))
        return
    facts = zoo.facts()
    for name in _ONLY.value:
        if name not in zoo.names():
            raise UnknownNameError("model", name, zoo.names())
    wanted = _ONLY.value or [name for name in zoo.names() if _AGAIN.value or _outdated(name, facts)]
    start, failed = time.monotonic(), []
    print(f"{'model':<24}{'ops':>8}{'groups':>8}{'seconds':>9}{'peak RSS':>10}")
    for name in wanted:
        made = _in_a_process(name)
        if made is None:
            failed.append(name)
            continue
        found = made["facts"]
        print(f"{name:<24}{found['ops']:>8,}{found['groups']:>8,}{made['seconds']:>9.1f}{made['rss_mib']:>6,.0f} MiB")
        sys.stdout.flush()
        facts[name] = {"params": zoo.parameters(name)} | found
        if _FACTS.value:
            kept = {known: facts[known] for known in zoo.names() if known in facts}
            write_whole(zoo.FACTS, json.dumps(kept, indent=1) + "\n")
    print(f"{len(wanted) - len(failed)} models in {time.monotonic() - start:.0f} s")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _outdated(name: str, facts: dict[str, Any]) -> bool:
    return name not in facts or facts[name]["params"] != json.loads(json.dumps(zoo.parameters(name)))


def _in_a_process(name: str) -> dict[str, Any] | None:
    command = [sys.executable, __file__, f"--child={name}"] + ([f"--graphs={_GRAPHS.value}"] if _GRAPHS.value else [])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: {done.stderr.strip()[-2000:]}", file=sys.stderr)
        return None
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def _build(name: str) -> dict[str, Any]:
    from tfplace.cli.quiet import load_tensorflow

    load_tensorflow(gpus=False)
    import tfplace
    from tfplace.report.model_facts import model_facts

    start = time.monotonic()
    built = zoo.build(name)
    graph = tfplace.extract(built.model, built.batch, name=name)
    seconds = time.monotonic() - start
    if _GRAPHS.value:
        Path(_GRAPHS.value).mkdir(parents=True, exist_ok=True)
        graph.save(Path(_GRAPHS.value) / f"{name}.npz")
    facts = model_facts(built.model, graph)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux
    return {"facts": facts, "seconds": round(seconds, 1), "rss_mib": rss}


if __name__ == "__main__":
    app.run(main)
