"""The recurrent policy on graphs other than the one it was trained on, beside what compare.py --suite=unseen has.

python -m research.benchmarks.rnn_elsewhere --graphs=graphs          # 40 minutes; adds to research/data/unseen.jsonl

The row "RNN-based" of the figure of Placeto (Addanki et al. 2019): the sequence-to-sequence policy learns on one graph
of a family from nothing, and places the graphs that are held out as it is. Departure: the paper's features of a unit
are its graph's own (types that occur, neighbours by number), which cannot be read on another graph; these are those of
`tfplace.learned.features.graph_inputs`. The number of devices is that of the training, as the network has an output for
each. Each seed trains on another graph. Simulated.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path

from absl import app, flags

from research.suites import suites
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script

ROOT = Path(__file__).resolve().parents[2]

NAME = "rnn_elsewhere"
TRAINED, DRAWS, GROUPS = 2400, 49, 256
"""Evaluations on the graph it learns from; placements drawn on another, as many as Placeto tries; groups of both."""

_GRAPHS = flags.DEFINE_string("graphs", None, "Directory of the families' graphs.", required=True)
_OUT = flags.DEFINE_string("out", str(ROOT / suites.UNSEEN.out), "The results, to which these are added.")
_SEEDS = flags.DEFINE_integer(
    "seeds", suites.UNSEEN.seeds, "Graphs of each family that it is trained on, one a seed.", 1
)
_TOPOLOGIES = flags.DEFINE_list("topologies", list(suites.UNSEEN.topologies), "Presets.")


def main(argv: list[str]) -> None:
    with script(argv):
        _run_missing()


def _run_missing():
    load_tensorflow(gpus=False)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # each graph has a policy of its own to trace
    from tfplace_zoo import families

    from research.suites.running import refuse_other_graphs
    from tfplace.comparison.cells import Case
    from tfplace.comparison.journal import Journal
    from tfplace.report.progress import Stages
    from tfplace.search.budget import Budget

    journal = Journal(Path(_OUT.value), {"budget": str(Budget.parse(suites.UNSEEN.budget)), "simulated": True})
    with Stages(quiet=False) as stages:
        for family in families.names():
            learned, held_out = families.split(family)
            for topology in _TOPOLOGIES.value:
                cases = [Case(f"{family}_{index}", topology) for index in held_out]
                refuse_other_graphs([(graph_of(case), case) for case in cases], journal)
                for seed in range(_SEEDS.value):
                    todo = [case for case in cases if (case, NAME, seed) not in journal.runs]
                    if todo:
                        known = train(Case(f"{family}_{learned[seed]}", topology, groups=GROUPS), seed)
                        stages.stage(f"{family} on {topology}, seed {seed}")
                    for case in todo:
                        journal.add(place(case, known, seed))


def graph_of(case):
    return Path(_GRAPHS.value) / f"{case.graph}.npz"


def problem_of(case):
    from tfplace.comparison import cells
    from tfplace.core.graph import OpGraph

    return cells.problem_of(OpGraph.load(graph_of(case)), case)


def learner(start, context):
    """The policy for a context's units."""
    import numpy as np

    from tfplace.learned.features.graph_inputs import graph_inputs
    from tfplace.learned.features.prior import prior_logits
    from tfplace.learned.networks.one_by_one import OneByOne
    from tfplace.learned.policies.seq2seq import Seq2SeqSettings

    settings, problem = Seq2SeqSettings(), context.problem
    inputs = graph_inputs(problem)
    features = np.empty_like(inputs.units)
    features[inputs.order] = inputs.units
    network = {"hidden": settings.hidden, "embedding": settings.embedding}
    return OneByOne(problem, prior_logits(problem, start, settings.lean), context.rng, network, features=features)


def train(case, seed):
    """Parameters after learning on one graph."""
    from tfplace.core.search_context import BudgetSpentError
    from tfplace.learned.training.settings import TrainSettings
    from tfplace.learned.training.trainer import Training
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search

    training = Training(
        Search(problem_of(case), Budget(evaluations=TRAINED), seed).context(NAME),
        functools.partial(learner, None),
        TrainSettings(),
    )
    try:
        training.go()
    except BudgetSpentError:
        return training.parameters.values()
    raise AssertionError("a training ends with its budget")


def place(case, known, seed):
    """The best of what the policy draws on another graph."""
    import numpy as np

    from tfplace.comparison.cells import Run
    from tfplace.local_search.batches import all_keys
    from tfplace.local_search.grouped_context import in_groups
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search

    wall, cpu = time.perf_counter(), time.process_time()
    search = Search(problem_of(case), Budget(evaluations=DRAWS), seed)
    grouped = in_groups(search.context(NAME), GROUPS)
    policy = learner(None, grouped)
    for variable, value in zip(policy.variables, known, strict=True):
        variable.assign(value)
    all_keys(grouped, policy.sample(DRAWS, np.array([seed, 0], np.int32), 0).devices)
    over, step_s = search.best_key
    return Run(
        case=case,
        placer=NAME,
        seed=seed,
        step_s=None if over else step_s,
        over_bytes=over,
        evaluations=search.evaluations,
        seconds=round(time.perf_counter() - wall, 3),
        cpu_s=round(time.process_time() - cpu, 3),
        failed=search.failed,
    )


if __name__ == "__main__":
    app.run(main)
