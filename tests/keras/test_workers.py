"""PlacementCallback on two workers: the numbers of local devices, and one error when a worker is lost."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.pages import ROOT
from tfplace.errors import ClusterError, InputError, TopologyError
from tfplace.keras import PlacementCallback

WORKERS = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (0, 1)]
ADDRESSES = "10.0.0.7:2222,10.0.0.8:2222"


def facts_of(*arguments, inside=()):
    command = [*inside, sys.executable, "-m", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=500, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def facts():
    return facts_of("tests.keras.fit_on_workers", "usual")


@pytest.mark.cluster
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_fit_on_workers_has_the_numbers_of_one_on_local_devices_to_the_bit(facts, package):
    found = facts[package]
    local, remote = found["histories"]
    assert local == remote
    assert {"loss", "val_loss"} < {*local}
    assert found["weights"]
    assert found["during"] == WORKERS
    assert all(found["counts"][device] > 100 for device in ("CPU:0", "CPU:1"))
    assert found["moved"] == 0


@pytest.mark.cluster
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_model_can_be_used_afterwards(facts, package):
    found = facts[package]
    assert found["after"] == ["CPU:0"]
    assert found["evaluate"][0] == found["evaluate"][1]
    assert found["predict"]


@pytest.mark.cluster
def test_what_the_process_held_before_it_connects_goes_on(facts):
    found = facts["first"]
    assert found["assigned"] == 2.0
    assert found["evaluated"][0] == found["evaluated"][1]


@pytest.mark.cluster
def test_a_lookup_table_which_tensorflow_would_lose_is_refused_and_kept(facts):
    found = facts["first"]
    assert found["table"]["type"] == "ClusterError"
    assert "StaticHashTable" in found["table"]["text"]
    assert found["found"] == 1


@pytest.mark.cluster
def test_the_port_that_workers_fetch_from_hears_loopback_only(facts):
    assert facts["first"]["filtered"] == [True]


@pytest.mark.cluster
def test_a_killed_worker_ends_the_fit_with_an_error_that_names_it(facts):
    found = facts["lost"]
    assert found["error"]["type"] == "LostWorkerError"
    assert found["error"]["addresses"] == [found["address"]]
    assert found["address"] in found["error"]["text"]
    assert found["unchanged"], "the weights are those from before the fit"
    assert found["evaluated"][0] > 0


@pytest.mark.cluster
def test_a_fit_resumes_with_the_numbers_of_one_that_was_not_interrupted(facts):
    found = facts["lost"]
    assert found["rest"] == found["loss"][1:]
    assert found["weights"]


@pytest.mark.cluster
def test_a_worker_that_is_lost_in_validation_ends_the_fit_alike(facts):
    found = facts["validation"]
    assert found["error"]["type"] == "LostWorkerError"
    assert found["error"]["addresses"] == [found["address"]]
    assert found["evaluated"][0] > 0


@pytest.mark.cluster
def test_an_interrupt_ends_the_fit_and_workers_are_left(facts):
    found = facts["interrupted"]
    assert found["error"]["type"] == "KeyboardInterrupt"
    assert found["after"] == ["CPU:0"]
    assert found["left"] == 2, "only the process's own devices are left"


@pytest.mark.cluster
def test_a_worker_that_does_not_answer_and_other_devices_are_refused(facts):
    found = facts["refused"]
    assert found["silent"]["type"] == "ClusterError"
    assert f"no answer from {found['address']} within" in found["silent"]["text"]
    for wrong in ("three", "one"):
        assert found[wrong]["type"] == "ApplyError"
        assert "devices among /job:worker/replica:0/task:0/device:CPU:0" in found[wrong]["text"]
    assert found["after"] == ["CPU:0"]


@pytest.mark.cluster
def test_an_op_that_calls_python_stays_in_this_process(facts):
    found = facts["python"]
    assert found["found"] == [2.0 * (found["pid"] + square) for square in (1.0, 4.0)]
    assert sum(found["counts"].values()) > 3


@pytest.mark.cluster
def test_a_model_is_trained_over_hosts_as_written(facts):
    assert facts["page"] == {"blocks": 2, "steps": 1 + 10}  # of a batch of 32


@pytest.mark.slow  # TensorFlow waits 20 s by itself
@pytest.mark.cluster
def test_a_worker_that_stops_answering_is_lost_and_can_come_back():
    found = facts_of("tests.keras.fit_on_workers", "stopped")
    assert found["error"]["type"] == "LostWorkerError"
    assert found["error"]["addresses"] == [found["address"]]
    assert found["error"]["took_s"] < 60
    assert found["again"] == 2


def may_make_namespaces():
    probe = "ip link add br0 type bridge && tc qdisc add dev lo root tbf rate 1gbit burst 64kb latency 1s"
    found = shutil.which("unshare")
    return (
        bool(found)
        and not subprocess.run([found, "-n", "sh", "-c", probe], capture_output=True, check=False).returncode
    )


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.skipif(not may_make_namespaces(), reason="needs network namespaces with bridges and limited rates")
def test_hosts_with_slow_links_give_the_same_numbers_and_one_that_is_cut_off_is_named():
    found = facts_of("tests.keras.fit_in_namespaces", inside=["unshare", "-n"])
    local, remote = found["histories"]
    assert local == remote
    assert found["weights"]
    assert found["during"] == WORKERS
    assert found["error"]["type"] == "LostWorkerError"
    assert found["error"]["addresses"] == [found["pulled"]]
    assert found["error"]["took_s"] < 120


@pytest.mark.parametrize(
    ("wrong", "error", "received"),
    [
        ({"cluster": "10.0.0.7", "topology": "2xP100"}, ClusterError, "'10.0.0.7'"),
        ({"cluster": "10.0.0.7:0", "topology": "2xP100"}, ClusterError, "'10.0.0.7:0'"),
        ({"cluster": "a:1,a:1", "topology": "2xP100"}, ClusterError, "a:1, a:1"),
        ({"cluster": (), "topology": "2xP100"}, ClusterError, "workers none"),
        ({"cluster": ADDRESSES}, InputError, f"cluster='{ADDRESSES}' without a topology"),
        ({"cluster": ADDRESSES, "topology": "no_such.json"}, TopologyError, "no_such.json"),
    ],
)
def test_wrong_options_are_refused_when_the_callback_is_created(wrong, error, received):
    with pytest.raises(error) as refused:
        PlacementCallback(**wrong)
    assert received in refused.value.received
