"""What `research/compare_placers.py` compares: cases, placers, budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from research.suites.versus import UNLEARNED
from tfplace.comparison.cells import AT_ONCE, CONSTRUCTIVE, LEARNED, SEARCHES, Case, Trained, seeds_of


@dataclass(frozen=True)
class Suite:
    """Cases and who is run on them.

    Attributes:
      placers: their names.
      budget: of a cell.
      seeds: for placers with random choices.
      out: file of the results.
      page: name of the tables on a page.
      models: of the zoo; all if empty.
      topologies: presets; for each model P100s in the numbers in which papers placed it if empty.
      tight: models that are placed with tight memory too; all if None.
      part: with tight memory each accelerator has this part of what one of them would need for everything; if None,
        1.5 times its share.
      groups: see `Case`.
      parameters: of models, instead of their own.
      held_out: whether the models are, by default, all members of families that policies are not trained on.
      trained: what stands behind names in `placers` that are no placers'; weights in a directory that is told later.
      beside: names of which another command adds results.
      own_seeds: of placers, instead of `seeds`.
    """

    placers: tuple[str, ...]
    budget: str
    seeds: int
    out: str
    page: str
    models: tuple[str, ...] = ()
    topologies: tuple[str, ...] = ()
    tight: tuple[str, ...] | None = None
    part: float | None = None
    groups: int = 0
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held_out: bool = False
    trained: Mapping[str, Trained] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    own_seeds: Mapping[str, int] = field(default_factory=dict)

    def cases(self, model: str, counts: Sequence[int]) -> list[Case]:
        """Those of a model.

        Args:
          model: its name.
          counts: numbers of devices on which papers placed it.
        """
        own = tuple(f"{n}xP100" for n in counts if n in (2, 4, 8)) or ("4xP100",)
        kinds = (False, True) if self.tight is None or model in self.tight else (False,)
        return [
            Case(model, name, tight, self._spare(name) if tight else 1.5, self.groups)
            for name in self.topologies or own
            for tight in kinds
        ]

    def runs(self) -> list[tuple[str, int]]:
        """What is run in each case: every placer with each of its seeds."""
        counts = {name: self.own_seeds.get(name, self.seeds) for name in self.placers}
        return [(name, seed) for name, count in counts.items() for seed in seeds_of(name, count)]

    def with_seeds(self, seeds: int) -> Suite:
        """The same with so many for every placer with random choices."""
        return replace(self, seeds=seeds, own_seeds={})

    def _spare(self, topology: str) -> float:
        """`Case.spare` that gives each accelerator its part."""
        counts = (int(kind.partition("x")[0]) for kind in topology.split("+"))
        return 1.5 if self.part is None else self.part * sum(counts)


def own_budget(name: str) -> tuple[str, int]:
    """A placer and its evaluations, of a name beside a suite such as "local_search_500"."""
    placer, _, evaluations = name.rpartition("_")
    return placer, int(evaluations)


_SMALL = {
    "inception_v3": {"batch": 32},
    "rnnlm_2": {"batch": 64, "steps": 10},
    "transformer": {"batch": 32, "layers": 4},
}

FULL = Suite((*CONSTRUCTIVE, "placeto", "gdp", *SEARCHES), "60s", 3, "research/data/compare.jsonl", "compare")

QUICK = Suite(
    FULL.placers, "2s", 3, "out/quick.jsonl", FULL.page, models=tuple(_SMALL), topologies=("4xP100",), parameters=_SMALL
)

LEARNED_PLACERS = (
    *("single", "expert", "scotch", "min_cut", "metis", "heft", "m_sct"),
    *UNLEARNED,
    *LEARNED,
)
"""Policies beside what the papers compare them with, and beside searches that learn nothing."""

_CHEAP = (*UNLEARNED, "policy_gradient", "post_ce", "post_ppo", "post")
"""Placers whose runs take seconds, so that more seeds cost little."""

POLICIES = Suite(
    LEARNED_PLACERS,
    "2400 evaluations",
    5,
    "research/data/policies.jsonl",
    "policies",
    models=("inception_v3", "rnnlm_2", "nmt_2", "gnmt_4"),
    topologies=("2xP100", "4xP100"),
    tight=("nmt_2",),
    part=0.75,
    groups=256,
    own_seeds=dict.fromkeys(_CHEAP, 10) | dict.fromkeys(("placeto_scratch", "gdp_scratch"), 3),
)

QUICK_POLICIES = Suite(
    LEARNED_PLACERS,
    "200 evaluations",
    2,
    "out/quick_policies.jsonl",
    POLICIES.page,
    models=("rnnlm_2", "transformer"),
    topologies=("4xP100",),
    tight=("rnnlm_2",),
    part=0.75,
    groups=64,
    parameters=_SMALL,
)

UNSEEN = Suite(
    (*CONSTRUCTIVE, *AT_ONCE, "auto"),
    "60s",
    3,
    "research/data/unseen.jsonl",
    "unseen",
    topologies=("2xP100", "4xP100", "2xV100-PCIe+2xP100", "8xP100"),
    tight=(),
    held_out=True,
    beside=(
        *("rnn_elsewhere", "random_search_49", "annealing_49", "local_search_49", "local_search_500"),
        *("random_search_4049", "local_search_4049", "auto_2000", "placeto_49"),
        *("placeto_scratch_5000", "placeto_scratch_20000"),
    ),
)
"""Policies that were trained on some graphs, on others."""

SAMPLES = Suite(
    (
        "single",
        "expert",
        "scotch",
        "heft",
        "m_sct",
        *UNLEARNED,
        "placeto_scratch",
        "seq2seq",
    ),
    "20000 evaluations",
    3,
    "research/data/samples.jsonl",
    "samples",
    models=("inception_v3", "nmt_2", "nasnet"),
    topologies=("2xP100", "4xP100"),
    tight=(),
    groups=256,
    own_seeds=dict.fromkeys(UNLEARNED, 10),
)
"""Placeto beside the policy that it is compared with, on the models of its paper's table."""

GDP = Suite(
    (
        *("single", "expert", "scotch", "min_cut", "metis", "heft", "m_topo", "m_etf", "m_sct"),
        *UNLEARNED,
        "gdp_scratch",
        "hierarchical",
    ),
    "500 evaluations",
    3,
    "research/data/gdp.jsonl",
    "gdp",
    topologies=("4xP100",),
    tight=(),
    own_seeds=dict.fromkeys(UNLEARNED, 10),
)
"""GDP beside what its paper compares it with, on the whole zoo, without groups."""

_ELSEWHERE = "without_{family}.npz"

TRANSFER = Suite(
    ("single", "heft", "m_sct", "random_search", "placeto_scratch", "placeto_elsewhere", "placeto_tuned"),
    "20000 evaluations",
    1,
    "research/data/transfer.jsonl",
    "transfer",
    topologies=("4xP100",),
    tight=(),
    held_out=True,
    trained={
        "placeto_elsewhere": Trained("placeto", _ELSEWHERE, options={"moves": 0}),
        "placeto_tuned": Trained("placeto", _ELSEWHERE, fine_tune=50, options={"moves": 0}),
    },
)
"""A policy that was trained on other families, at once and after a little training, beside one that begins anew."""

ABLATION = Suite(
    ("single", "heft", "metis", "random_search", "annealing", "gdp_whole", "gdp_no_attention", "gdp_no_superposition"),
    "200 evaluations",
    3,
    "research/data/ablation.jsonl",
    "ablation",
    topologies=("4xP100",),
    tight=(),
    held_out=True,
    trained={
        "gdp_whole": Trained("gdp", "whole.npz"),
        "gdp_no_attention": Trained("gdp", "no_attention.npz"),
        "gdp_no_superposition": Trained("gdp", "no_superposition.npz"),
    },
)
"""GDP's parts left out, each trained alike, on graphs that are held out."""

SUITES = {
    "placers": FULL,
    "policies": POLICIES,
    "samples": SAMPLES,
    "gdp": GDP,
    "unseen": UNSEEN,
    "transfer": TRANSFER,
    "ablation": ABLATION,
}

QUICKLY = {"placers": QUICK, "policies": QUICK_POLICIES}
