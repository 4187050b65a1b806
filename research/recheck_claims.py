"""Has Grappler's cost model judge the placements of a claim, as a second opinion beside the simulator.

    python -m research.recheck_claims --claim=colocrl
    python -m research.recheck_claims --claim=colocrl --page=docs/research/claims_seq2seq.md  # only the tables

Every placer is run again with seed 0, which gives the placements that research/reproduce_claims.py found with it, but
where the budget is in seconds. Results are in research/data/recheck.json, claim by claim; what is there is not judged
again.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

from absl import app, flags

from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script
from tfplace.comparison.tables import Page
from tfplace.errors import UnknownNameError
from tfplace.files import check_writable, write_whole, writing
from tfplace.report.progress import Stages

ROOT = Path(__file__).resolve().parent.parent

_JUDGED = ("colocrl", "gdp", "gdp-hold-out", "hierarchical-two", "placeto-samples", "placeto-unseen", "post")
_CLAIM = flags.DEFINE_enum(
    "claim", "colocrl", _JUDGED, "Whose placements; those of gdp are also those of hierarchical and baechi."
)
_TOPOLOGIES = flags.DEFINE_list("topologies", [], "Only of the claim's cases on these presets.")
_WITHOUT = flags.DEFINE_list("without", [], "Placers of the claim that are not run again, as those that take long.")
_BESIDE = flags.DEFINE_list("beside", [], "Placers beside the claim's with budgets of their own, such as placeto_49.")
_QUICK = flags.DEFINE_bool("quick", False, "Its small models.")
_OUT = flags.DEFINE_string("out", None, "The results; by default research/data/recheck.json, of --quick in out/.")
_PAGE = flags.DEFINE_string("page", None, "A page whose tables are rewritten from what there is.")


def main(argv: list[str]) -> None:
    """Judges what is missing, and prints the table."""
    with script(argv):
        _recheck()


def _recheck() -> None:
    if _QUICK.value and _PAGE.value:
        raise SystemExit("--quick with --page; what a quick run finds is for no page.")
    page = None if _PAGE.value is None else Page(_PAGE.value, f"{_CLAIM.value}, rechecked")
    out = Path(_OUT.value or ROOT / ("out/quick_recheck.json" if _QUICK.value else "research/data/recheck.json"))
    check_writable(out)
    load_tensorflow(gpus=False)
    import keras
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # each graph has policies of its own to trace
    from research.claims.claims import CLAIMS
    from research.claims.recheck import Judged, judge, judged_tables, read_judged
    from research.suites.suite_runs import SuiteRun, extracted

    claim = CLAIMS[_CLAIM.value]
    suite = claim.run_of(quick=_QUICK.value)
    if _TOPOLOGIES.value:
        suite = dataclasses.replace(suite, topologies=tuple(_TOPOLOGIES.value))
    for name in _WITHOUT.value:
        if name not in suite.placers:
            raise UnknownNameError(f"placer of {_CLAIM.value}", name, suite.placers)
    budgeted = [name for name in suite.beside if name.rpartition("_")[2].isdigit()]
    for name in _BESIDE.value:
        if name not in budgeted:
            raise UnknownNameError(f"placer beside {_CLAIM.value}", name, budgeted)
    run = SuiteRun(suite, ROOT, ROOT / suite.out, lambda: None)
    wanted = [*(name for name in suite.placers if name not in _WITHOUT.value), *_BESIDE.value]
    kept = read_judged(out).get(_CLAIM.value, [])
    with Stages(quiet=False) as stages:
        cases = list(run.cases())
        done = {(one.case, one.placer) for one in kept}
        todo = [
            (model, case, placers)
            for model, case in ([] if page else cases)
            if (placers := [name for name in wanted if (str(case), name) not in done])
        ]
        for model, its in itertools.groupby(todo, key=lambda one: one[0]):
            stages.stage(f"extracting {model}")
            keras.utils.clear_session()  # Keras numbers its names within a process
            graph = extracted(model, suite.parameters.get(model, {}))
            for _, case, placers in its:
                for one in judge(graph, case, suite, placers, stages.stage):
                    kept.append(one)
                    with writing(out):
                        # those of other claims may be judged at the same time
                        results = {**read_judged(out), _CLAIM.value: kept}
                        write_whole(out, json.dumps(results, indent=1, default=Judged.to_dict) + "\n")
    names = {str(case) for _, case in cases}
    text = judged_tables([one for one in kept if one.case in names], claim.methods, run.rows())
    print(text)
    if page is not None:
        page.write(text)


if __name__ == "__main__":
    app.run(main)
