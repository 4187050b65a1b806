"""Does the programme of `tfplace.schedule.pipeline.replicated` find PipeDream's published optimum?

    python -m research.benchmarks.pipedream.run --data=DIR

DIR holds reference.json (the cases, with the bottleneck and the stages that PipeDream's own program gives) and
profiles/NAME.txt, layer profiles of github.com/msr-fiddle/pipedream (MIT licence), which are not part of tfplace. The
results go to research/data/pipedream.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from research.benchmarks.common import ROOT
from research.benchmarks.pipedream.profile import read_profile, states_of
from tfplace.files import write_whole
from tfplace.schedule.pipeline.replicated import replicated_stages
from tfplace.version import versions

OUT = ROOT / "research" / "data" / "pipedream.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="directory of reference.json and profiles")
    parser.add_argument("--out", type=Path, default=OUT, help="the results")
    args = parser.parse_args()
    cases = [run(args.data, case) for case in json.loads((args.data / "reference.json").read_text())["cases"]]
    command = "python -m research.benchmarks.pipedream.run --data=DIR"
    write_whole(args.out, json.dumps({"command": command, "versions": versions(), "cases": cases}, indent=1) + "\n")
    print(table(cases))


def run(data: Path, case: dict) -> dict:
    """One case of reference.json: what is found, beside what is published, and seconds from the file to the answer."""
    since = time.perf_counter()
    states = states_of(read_profile(data / "profiles" / f"{case['profile']}.txt"))
    bottleneck_s, stages = replicated_stages(states, case["devices"], case["bandwidth_bytes_per_s"])[0]
    return {
        "profile": case["profile"],
        "devices": case["devices"],
        "bandwidth_bytes_per_s": case["bandwidth_bytes_per_s"],
        "states": len(states.seconds),
        "bottleneck_s": bottleneck_s,
        "published_s": case["bottleneck_s"],
        "replicas": [stage.replicas for stage in stages],
        "published_replicas": [stage["replicas"] for stage in case["stages"]],
        "seconds": round(time.perf_counter() - since, 2),
    }


def table(cases: list[dict]) -> str:
    """For people: bottlenecks over the published ones, replicas of the stages, seconds taken."""
    rows = ["| profile | devices | GB/s | states | bottleneck ms | over published | replicas | published | seconds |"]
    rows.append("|---" * 9 + "|")
    for c in cases:
        numbers = f"{c['bandwidth_bytes_per_s'] / 1e9:g} | {c['states']} | {c['bottleneck_s'] * 1e3:.3f}"
        ratio = f"{c['bottleneck_s'] / c['published_s']:.6f}"
        replicas, published = ("-".join(map(str, c[what])) for what in ("replicas", "published_replicas"))
        row = f"{c['profile']} | {c['devices']} | {numbers} | {ratio} | {replicas} | {published} | {c['seconds']}"
        rows.append(f"| {row} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
