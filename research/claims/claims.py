"""The claims, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from research.claims import baechi, colocrl, hierarchical, hold_out, post
from research.claims.base import Claim
from research.suites.suites import GDP, POLICIES, QUICK_POLICIES, SAMPLES, UNSEEN, Suite
from research.suites.versus import UNLEARNED
from research.tables.gdp_table import gdp_tables
from research.tables.samples_table import samples_tables
from research.tables.unseen_table import ALONE, unseen_tables
from tfplace.comparison.cells import Trained

_BASELINES = ("single", "expert", "metis", "heft", *UNLEARNED)
_PARTITIONERS = ("scotch", "min_cut")
_COLOCRL = (*_BASELINES, *_PARTITIONERS, "seq2seq")
_COLOCRL_MODELS = ("inception_v3", "rnnlm_2", "nmt_2")
_POST = (*_BASELINES, "policy_gradient", "post_ce", "post_ppo", "post", "seq2seq")
_SAMPLES = ("single", "heft", *UNLEARNED, "placeto_scratch", "seq2seq")
_GDP = (*_BASELINES, "gdp_scratch", "hierarchical")
_HDP = (*_BASELINES, *_PARTITIONERS, "hierarchical")
_TUNED = {"gdp_tuned": Trained("gdp", "shipped", fine_tune=50)}
_HOLD_OUT = (*_BASELINES, "gdp_scratch", "gdp", "gdp_tuned")

_LARGE = Suite(
    (*_HOLD_OUT, "hierarchical"),
    "600 evaluations",
    3,
    "research/data/hold_out.jsonl",
    "gdp-hold-out",
    models=("gnmt_8", "amoebanet"),
    topologies=("4xP100",),
    tight=(),
    parameters={"amoebanet": {"cells": 24}},
    trained=_TUNED,
    own_seeds=dict.fromkeys(UNLEARNED, 10),
)


def _quickly(name: str, placers: Sequence[str], budget: str = "100 evaluations", **changes: object) -> Suite:
    """Two small models, in a file of their own."""
    out = f"out/quick_{name}.jsonl"
    small = replace(QUICK_POLICIES, placers=tuple(placers), budget=budget, out=out, tight=())
    return replace(small, **changes)  # type: ignore[arg-type]


CLAIMS = {
    "colocrl": Claim(
        "Mirhoseini et al., ICML 2017 (ColocRL)",
        "A sequence model that learns from measured steps is up to 23.5 % faster than the best of one GPU, Scotch, "
        "MinCut and experts, which is a step shorter by 19.0 %, and not faster in three of six cells (table 2; from "
        "memory of the paper).",
        replace(POLICIES, placers=_COLOCRL, models=_COLOCRL_MODELS),
        _quickly("colocrl", _COLOCRL),
        colocrl.tables,
        ("seq2seq",),
    ),
    "colocrl-k80": Claim(
        "Mirhoseini et al., ICML 2017 (ColocRL)",
        "The same on K80s, the GPUs of the paper.",
        replace(
            POLICIES,
            placers=_COLOCRL,
            out="research/data/k80.jsonl",
            models=_COLOCRL_MODELS,
            topologies=("2xK80", "4xK80"),
            tight=(),
        ),
        _quickly("colocrl_k80", _COLOCRL, topologies=("2xK80",)),
        colocrl.tables,
        ("seq2seq",),
    ),
    "hierarchical": Claim(
        "Mirhoseini et al., ICLR 2018 (hierarchical planner)",
        "A policy that learns groups and placement together places ungrouped graphs of tens of thousands of ops up to "
        "60.6 % faster (abstract), and loses 4.9 % on its largest (table 1; from memory of the paper).",
        replace(GDP, placers=_HDP),
        _quickly("hierarchical", _HDP, groups=0),
        hierarchical.tables,
        ("hierarchical",),
    ),
    "hierarchical-two": Claim(
        "Mirhoseini et al., ICLR 2018 (hierarchical planner)",
        "The same on two GPUs, on which the paper has four of its models.",
        replace(
            GDP,
            placers=_HDP,
            seeds=10,
            out="research/data/two_gpus.jsonl",
            models=("inception_v3", "resnet152", "rnnlm_2", "nmt_2"),
            topologies=("2xP100",),
        ),
        _quickly("hierarchical_two", _HDP, groups=0, topologies=("2xP100",)),
        hierarchical.all_tables,
        ("hierarchical",),
    ),
    "placeto-samples": Claim(
        "Addanki et al., NeurIPS 2019 (Placeto)",
        "Placeto needs up to 6.1 times fewer placements measured than the recurrent policy (abstract), by cell .55 to "
        "6.1 times (table 1; from memory of the paper).",
        SAMPLES,
        _quickly("placeto_samples", _SAMPLES, "1500 evaluations"),
        samples_tables,
        ("placeto_scratch",),
    ),
    "placeto-unseen": Claim(
        "Addanki et al., NeurIPS 2019 (Placeto)",
        "A trained policy places unseen graphs of a family almost as well as one trained on each, without training "
        "again (a figure; no number in the abstract).",
        UNSEEN,
        replace(
            UNSEEN,
            budget="2s",
            seeds=1,
            out="out/quick_placeto_unseen.jsonl",
            topologies=("2xP100",),
        ),
        unseen_tables,
        (ALONE, "placeto", "gdp"),
    ),
    "post": Claim(
        "Gao, Chen and Li, NeurIPS 2018 (Post)",
        "Up to 63.7 % shorter steps than the state of the art at the same learning time (abstract), which is mostly "
        "what running what is tried takes.",
        replace(
            POLICIES, placers=_POST, out="research/data/post.jsonl", own_seeds={**POLICIES.own_seeds, "seq2seq": 3}
        ),
        _quickly("post", _POST),
        post.tables,
        ("post",),
    ),
    "gdp": Claim(
        "Zhou et al., 2019 (GDP)",
        "16 % faster than human experts, 9.2 % faster than the hierarchical planner, and 15 times as soon (abstract).",
        GDP,
        _quickly("gdp", _GDP, groups=0),
        gdp_tables,
        ("gdp_scratch", "hierarchical"),
    ),
    "gdp-hold-out": Claim(
        "Zhou et al., 2019 (GDP)",
        "A policy trained on other graphs places held-out ones of over 50,000 ops, at once or after under 50 updates "
        "(abstract; no number).",
        _LARGE,
        _quickly("gdp_hold_out", _HOLD_OUT, groups=0, trained={"gdp_tuned": Trained("gdp", "shipped", fine_tune=5)}),
        hold_out.tables,
        ("gdp", "gdp_tuned"),
    ),
    "baechi": Claim(
        "Jeon et al., SoCC 2020 (Baechi)",
        "List scheduling with memory places 654 to 206,000 times sooner than learning does, with steps at most 6.2 % "
        "above an expert's (abstract).",
        GDP,
        _quickly("baechi", ("single", "expert", *baechi.BAECHI, *baechi.LEARNED), groups=0),
        baechi.tables,
        baechi.BAECHI,
    ),
}
