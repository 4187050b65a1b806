"""How long splitting takes: seconds to read a step in K slices over seconds to read it whole.

    python -m research.benchmarks.slices_extraction                               # four models, K = 2, 4, 8; 15 minutes
    python -m research.benchmarks.slices_extraction --models=resnet50 --slices=2  # a part; results go to --out

Each model is read whole, in slices, and whole again, in one process; the ratio is to the mean of both. A batch that the
zoo has smaller than the slices is made that large.
"""

import statistics
import time

from absl import flags

from research.benchmarks.common import run
from tfplace.comparison.tables import table
from tfplace.version import versions

_MODELS = flags.DEFINE_list("models", ["inception_v3", "resnet50", "bert_base", "nasnet"], "Models of the zoo.")
_SLICES = flags.DEFINE_list("slices", ["2", "4", "8"], "Numbers of slices.")


def _measure(_):
    import keras
    from tfplace_zoo import zoo

    import tfplace

    rows = []
    for name in _MODELS.value:
        keras.backend.clear_session()
        most = max(map(int, _SLICES.value))
        built = zoo.build(name)
        if built.batch[0].shape[0] < most:
            built = zoo.build(name, batch=most)

        def seconds(slices, built=built):
            begun = time.perf_counter()
            graph = tfplace.extract(built.model, built.batch, slices=slices)
            return time.perf_counter() - begun, graph

        seconds(1)  # makes the slots, which no later trace does
        before, whole = seconds(1)
        split = {slices: seconds(slices) for slices in map(int, _SLICES.value)}
        after, _ = seconds(1)
        mean = statistics.mean((before, after))
        rows.append(
            {
                "model": name,
                "ops": whole.num_ops,
                "whole_s": [round(before, 2), round(after, 2)],
                "split": {
                    slices: {
                        "ops": graph.num_ops,
                        "seconds": round(took, 2),
                        "ratio": round(took / mean, 2),
                        "gathered": len(graph.slices.gathered),
                        "verdict": graph.slices.verdict,
                    }
                    for slices, (took, graph) in split.items()
                },
            }
        )
    return {"versions": versions(), "models": rows}


def _text(found):
    rows = []
    for row in found["models"]:
        split = [f"{one['ops']:,} ops, {one['ratio']:.2f}" for one in row["split"].values()]
        low, high = sorted(row["whole_s"])
        rows.append((row["model"], f"{row['ops']:,}", f"{low:.1f} to {high:.1f} s", *split))
    numbers = next(iter(found["models"]))["split"]
    return table(("model", "ops", "whole", *(f"{k} slices" for k in numbers)), rows)


if __name__ == "__main__":
    run("slices_extraction", _measure, _text)
