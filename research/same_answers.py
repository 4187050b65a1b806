"""Checks that a fixed list of placements is found again, to the last bit.

    python research/same_answers.py            # compares with research/data/same_answers.json
    python research/same_answers.py --write    # after a change that is meant to alter placements

A change of structure may not alter any of them. Each case is a model, a topology, a placer, a seed and a number of
evaluations; kept are the graph's fingerprint, a digest of the devices of its ops, and the simulated step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# With wider registers, products are summed in another order, and a policy learns something else from the same seed.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

DATA = Path(__file__).parent / "data" / "same_answers.json"

GRAPHS: dict[str, dict[str, Any]] = {
    "wide_mlp": {},
    "two_tower": {},
    "dlrm": {},
    "rnnlm_2": {"steps": 10},
    "transformer": {"layers": 2},
    "moe": {"layers": 2},
    "inception_v3": {},
}
SLOW_TO_LEARN = ("gdp_scratch", "hierarchical", "placeto_scratch", "seq2seq")
BY_THE_CLOCK = ("exact",)
"""The solver's limit is a time, so its answers vary with the machine."""


class Case(NamedTuple):
    """One search. `budget` counts evaluations; `max_memory` limits every GPU, None leaves it as it is."""

    graph: str
    topology: str
    placer: str
    budget: int
    seed: int = 0
    grouper: str | None = None
    objective: str = "step_time"
    max_memory: str | None = None


def cases() -> Iterator[Case]:
    """All of them, quick ones first."""
    from tfplace.registry import GROUPERS, PLACERS

    own = [name for name in PLACERS if name not in BY_THE_CLOCK]
    for placer in own:
        yield Case("wide_mlp", "2xP100", placer, 24 if placer in SLOW_TO_LEARN else 300)
        if placer not in SLOW_TO_LEARN:
            yield Case("transformer", "4xP100", placer, 200, seed=1)
    for placer in ("auto", "local_search", "heft", "etf", "m_sct", "expert", "metis", "brkga", "post"):
        yield Case("two_tower", "2xV100-PCIe+2xP100", placer, 1000, seed=2)
        yield Case("dlrm", "4xV100-NVLink", placer, 300, seed=3)
        yield Case("rnnlm_2", "4xP100", placer, 300, seed=4, max_memory="1GiB")
        yield Case("moe", "4xP100", placer, 200, seed=5)
        yield Case("inception_v3", "4xP100", placer, 500, seed=6)
    for grouper in GROUPERS:
        yield Case("rnnlm_2", "2xP100", "local_search", 500, grouper=grouper)
    for placer in ("auto", "load_search", "contiguous", "local_search"):
        yield Case("inception_v3", "4xP100", placer, 500, objective="throughput")
    yield Case("inception_v3", "4xP100", "auto", 5000)
    yield Case("inception_v3", "4xP100", "placeto", 2000)


def answer(case: Case, graph: Any) -> dict[str, Any]:
    """What the search finds, as plain data; the name of the error if it finds nothing."""
    import tfplace
    from tfplace.core.arrays import digest

    topology = tfplace.Topology.load(case.topology)
    gpus = [name for name in topology.device_names if name.startswith("GPU")]
    limits = None if case.max_memory is None else dict.fromkeys(gpus, case.max_memory)
    try:
        found = tfplace.place(
            graph,
            topology,
            placer=case.placer,
            budget=case.budget,
            seed=case.seed,
            grouper=case.grouper,
            objective=case.objective,
            max_memory=limits,
            progress=False,
        )
    except tfplace.TfplaceError as error:
        return {"error": type(error).__name__}
    return {"devices": digest([found.op_device]), "step_s": found.cost.step_s.hex(), "bound_s": found.bound_s.hex()}


def main(argv: list[str]) -> int:
    """Runs every case; 1 if one differs from what is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep what is found now")
    write = parser.parse_args(argv).write

    import tensorflow as tf
    from tfplace_zoo import zoo

    import tfplace

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    graphs = {}
    for name, params in GRAPHS.items():
        built = zoo.build(name, **params)
        graphs[name] = tfplace.extract(built.model, built.batch)
    found = {"graphs": {name: graph.fingerprint for name, graph in graphs.items()}, "cases": {}}
    kept = {} if write else json.loads(DATA.read_text())
    different = [name for name in GRAPHS if kept and kept["graphs"].get(name) != found["graphs"][name]]
    for case in cases():
        key = " ".join(str(value) for value in case)
        found["cases"][key] = answer(case, graphs[case.graph])
        if kept and kept["cases"].get(key) != found["cases"][key]:
            different.append(key)
            print(f"differs: {key}\n  kept  {kept['cases'].get(key)}\n  found {found['cases'][key]}", flush=True)
    if write:
        DATA.parent.mkdir(exist_ok=True)
        DATA.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found['cases'])} cases, {len(different)} differ from {DATA.name}")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
