import json

import keras
import pytest
from tfplace_zoo import zoo

import tfplace
from tfplace.cli import BAD_INPUT, PLACED, main
from tfplace.report.model_facts import model_facts

QUICK = ("rnnlm_2", "two_tower", "wide_mlp")


@pytest.mark.parametrize("name", QUICK)
def test_facts_are_those_of_the_models(name):
    keras.backend.clear_session()
    built = zoo.build(name)
    facts = model_facts(built.model, tfplace.extract(built.model, built.batch, name=name))
    known = dict(zoo.facts()[name])
    assert known.pop("params") == zoo.parameters(name)
    # Keras numbers layers without a name within a process, and names are part of the fingerprint
    assert facts | {"fingerprint": ""} == known | {"fingerprint": ""}


def test_facts_are_there_for_every_model_as_it_is_now():
    facts = zoo.facts()
    assert set(facts) == set(zoo.names()), "run scripts/make_zoo.py"
    for name in zoo.names():
        params = json.loads(json.dumps(zoo.parameters(name)))
        assert facts[name]["params"] == params, f"run scripts/make_zoo.py --only={name}"
        assert facts[name]["groups"] <= facts[name]["ops"]
        assert facts[name]["unknown"] == 0
        # weights are held all the time, and their gradients are beside them
        assert facts[name]["memory_bytes"] > 4 * facts[name]["parameters"]


def test_models_are_listed_with_their_sizes(capsys):
    assert main(["models"]) == PLACED
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if "inception_v3" in line)
    facts = zoo.facts()["inception_v3"]
    assert f"{facts['ops']:,}" in row
    assert f"{facts['groups']:,}" in row
    assert "23.8 M" in row
    assert "2, 4" in row
    assert "cifar10, nmt, ptb" in text


def test_a_model_that_was_not_built_has_no_sizes(capsys, monkeypatch):
    monkeypatch.setattr(zoo, "facts", dict)
    assert main(["models"]) == PLACED
    assert "wide_mlp" in capsys.readouterr().out


def test_one_model_is_shown_with_its_parameters(capsys):
    assert main(["models", "rnnlm_2"]) == PLACED
    text = capsys.readouterr().out
    assert all(f"--param={name}=" in text for name in zoo.parameters("rnnlm_2"))
    assert main(["models", "rnnlm2"]) == BAD_INPUT
    assert "Did you mean 'rnnlm_2'" in capsys.readouterr().err
    assert main(["models", "rnnlm_2", "rnnlm_4"]) == BAD_INPUT
    assert main(["placers", "heft"]) == BAD_INPUT


def test_help(capsys):
    assert main(["models", "--help"]) == PLACED
    assert "tfplace models NAME" in capsys.readouterr().out


def test_boxes_of_unlike_gpus_say_so(capsys):
    assert main(["topologies"]) == PLACED
    row = next(line for line in capsys.readouterr().out.splitlines() if "2xV100-PCIe+2xP100" in line)
    assert "9.3 to 14.0 TFLOP/s" in row and "15.8 GiB to 15.9 GiB" in row
