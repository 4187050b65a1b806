"""Has Grappler's cost model judge the placements of a claim, as a second opinion beside the simulator.

    python scripts/recheck.py --claim=colocrl
    python scripts/recheck.py --claim=colocrl --page=docs/reproduction.md    # only the table, of the results there are

Every placer is run again with seed 0, which gives the placements that scripts/reproduce.py found with it. Results are
in benchmarks/recheck.json, claim by claim and case by case; cases that are there are not judged again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.quiet import load_tensorflow  # noqa: E402
from tfplace.cli.scripts import script  # noqa: E402
from tfplace.compare.tables import Page  # noqa: E402
from tfplace.core.files import check_writable, write_whole, writing  # noqa: E402
from tfplace.report.progress import Stages  # noqa: E402

_CLAIM = flags.DEFINE_enum("claim", "colocrl", ["colocrl", "post"], "Whose placements; claims with groups.")
_QUICK = flags.DEFINE_bool("quick", False, "Its small models.")
_OUT = flags.DEFINE_string("out", None, "The results; by default benchmarks/recheck.json, of --quick in out/.")
_PAGE = flags.DEFINE_string("page", None, "A page whose table is rewritten from what there is.")


def main(argv: list[str]) -> None:
    """Judges what is missing, and prints the table."""
    with script(argv):
        _recheck()


def _recheck() -> None:
    if _QUICK.value and _PAGE.value:
        raise SystemExit("--quick with --page; what a quick run finds is for no page.")
    page = None if _PAGE.value is None else Page(_PAGE.value, f"{_CLAIM.value}, rechecked")
    out = Path(_OUT.value or ROOT / ("out/quick_recheck.json" if _QUICK.value else "benchmarks/recheck.json"))
    check_writable(out)
    load_tensorflow(gpus=False)
    import keras

    from models import zoo
    from tfplace.compare.suite_runs import SuiteRun
    from tfplace.extract.sources import extract_source
    from tfplace.reproduce.claims import CLAIMS
    from tfplace.reproduce.recheck import judge, judged_table, read_judged

    claim = CLAIMS[_CLAIM.value]
    suite = claim.quick if _QUICK.value else claim.suite
    results = read_judged(out)
    kept = results.setdefault(_CLAIM.value, [])
    with Stages(quiet=False) as stages:
        cases = list(SuiteRun(suite, ROOT, ROOT / suite.out, lambda: None).cases())
        todo = [] if page else [(n, case) for n, case in cases if str(case) not in {one.case for one in kept}]
        for model, case in todo:
            stages.stage(f"extracting {model}")
            keras.utils.clear_session()  # Keras numbers its names within a process
            built = zoo.build(model, **suite.parameters.get(model, {}))
            graph = extract_source(built.model, built.batch, training=None, fetches=None, name=model)
            kept += judge(graph, case, suite, stages.stage)
            known = {claim: [one.to_dict() for one in found] for claim, found in results.items()}
            with writing(out):
                write_whole(out, json.dumps(known, indent=1) + "\n")
    names = {str(case) for _, case in cases}
    text = judged_table([one for one in kept if one.case in names])
    print(text)
    if page is not None:
        page.write(text)


if __name__ == "__main__":
    app.run(main)
