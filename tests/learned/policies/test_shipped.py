"""The weights that come with the package do what their cards say."""

import json
import statistics
from importlib import resources
from pathlib import Path

import keras
import pytest
from tfplace_zoo import families

import tfplace
from tfplace.comparison.cells import Case, problem_of
from tfplace.learned.policies.gdp import GdpSettings
from tfplace.learned.training.placeto_settings import PlacetoSettings
from tfplace.learned.training.pretrained import Pretrained
from tfplace.pretraining.card import card_text, moves_card_text
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.search import Search

POLICIES = {"placeto": {"settings": PlacetoSettings(again=0)}, "gdp": {"settings": GdpSettings(draws=1)}}
"""With what each places first as when it was trained: nothing drawn in few groups."""


@pytest.mark.parametrize("policy", POLICIES)
def test_the_card_is_that_of_the_weights(policy):
    folder = resources.files("tfplace.learned").joinpath("weights")
    assert folder.joinpath(f"{policy}.md").read_text() == card_text(Pretrained.shipped(policy))
    assert len(folder.joinpath(f"{policy}.npz").read_bytes()) < 2**20


def test_the_card_of_moves_is_that_of_the_weights():
    folder = resources.files("tfplace.learned").joinpath("weights")
    known = Pretrained.shipped("moves")
    assert folder.joinpath("moves.md").read_text() == moves_card_text(known)
    assert known.card["fingerprints"] == Pretrained.shipped("placeto").card["fingerprints"]


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name == "ptb" else [pytest.mark.slow]) for name in families.names()],
)
def graph(request):
    """One that is held out, built anew."""
    keras.backend.clear_session()
    built = families.member(request.param, families.split(request.param)[1][0])
    return tfplace.extract(built.model, built.batch, name=built.name)


@pytest.mark.parametrize("policy", POLICIES)
def test_graphs_that_are_held_out_are_placed_as_the_card_says(policy, graph):
    card = Pretrained.shipped(policy).card
    assert graph.fingerprint == card["fingerprints"][graph.name]
    row = card["held_out"][f"{graph.name} on 4xP100"]
    search = Search(problem_of(graph, Case(graph.name, "4xP100")), Budget(evaluations=1), 0)
    search.run(PLACERS[policy](**POLICIES[policy]), policy)
    assert search.best_key == (0, pytest.approx(row["once"] * row["best_known_s"], rel=1e-3))


def test_moves_on_graphs_that_are_held_out_are_worth_what_the_benchmark_says(graph):
    """More than half of it, as searches part ways with the last bit."""
    found = json.loads((Path(__file__).parents[3] / "research" / "data" / "move_choice.json").read_text())
    steps = found[graph.name.rpartition("_")[0]][graph.name]
    without, chosen = (statistics.median(steps[arm]) for arm in ("no moves", "1,000 chosen"))
    search = Search(problem_of(graph, Case(graph.name, "4xP100")), Budget(evaluations=2000), 0)
    search.run(PLACERS["placeto"](moves=1000), "placeto")
    over, step_s = search.best_key
    assert not over and step_s < (without + chosen) / 2
