"""Fits over hosts that are network namespaces with slow links, workers started by `tfplace worker`; prints facts.

unshare -n python -m tests.keras.fit_in_namespaces
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"}

import numpy as np
import tensorflow as tf

from tests.keras.fit_on_workers import error_of, full_devices, on_workers
from tests.keras.fitting import fit, keras_of, make_model
from tests.measurement.clusters import soon
from tfplace.engines.child_process import end_with_parent
from tfplace.engines.sockets import answers

RATE = "100mbit"
HERE, PORT = "10.9.0.1", 2222
TASKS = (0, 1)


def shell(*lines):
    for line in lines:
        subprocess.run(line.split(), check=True)


def host(task):
    return f"10.9.0.{task + 2}"


def make_network():
    """This namespace's end: a bridge to which the others' links are joined."""
    shell("ip link set lo up", "ip link add br0 type bridge", f"ip addr add {HERE}/24 dev br0", "ip link set br0 up")


def start_worker(task):
    """A worker in a namespace of its own, whose link has a limited rate in both directions."""
    command = f"read go; exec {sys.executable} -m tfplace worker --host={host(task)} --port={PORT}"
    process = subprocess.Popen(
        ["unshare", "-n", "sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        preexec_fn=functools.partial(end_with_parent, os.getpid()),  # noqa: PLW1509  # it only makes two system calls
    )
    assert soon(lambda: Path(f"/proc/{process.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink())
    inside = f"nsenter -t {process.pid} -n"
    shell(
        f"ip link add v{task} type veth peer name w{task}",
        f"ip link set v{task} master br0 up",
        f"ip link set w{task} netns {process.pid}",
        f"{inside} ip link set lo up",
        f"{inside} ip addr add {host(task)}/24 dev w{task}",
        f"{inside} ip link set w{task} up",
        f"tc qdisc add dev v{task} root tbf rate {RATE} burst 64kb latency 400ms",
        f"{inside} tc qdisc add dev w{task} root tbf rate {RATE} burst 64kb latency 400ms",
    )
    process.stdin.write(b"go\n")
    process.stdin.close()
    return process


def run():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    make_network()
    with contextlib.ExitStack() as stack:
        workers = [start_worker(task) for task in TASKS]
        for worker in workers:
            stack.callback(worker.wait)
            stack.callback(worker.terminate)
        addresses = [f"{host(task)}:{PORT}" for task in TASKS]
        assert all(soon(lambda a=address: answers(a, 1.0), 120) for address in addresses)
        local, remote = make_model("keras"), make_model("keras")
        arguments = {"placer": "round_robin"}
        seen = set()
        look = keras_of("keras").callbacks.LambdaCallback(
            on_train_batch_end=lambda *_, **__: seen.update(full_devices(remote))
        )
        histories = [fit(local, on_workers(None, **arguments)), fit(remote, on_workers(addresses, **arguments), look)]
        pulled = make_model("keras")
        pull = keras_of("keras").callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs=None: epoch and shell("ip link set v1 down")
        )
        error = error_of(lambda: fit(pulled, on_workers(addresses, **arguments), pull))
        shell("ip link set v1 up")
        return {
            "histories": histories,
            "weights": all(map(np.array_equal, local.get_weights(), remote.get_weights())),
            "during": sorted(seen),
            "error": error,
            "pulled": addresses[1],
        }


if __name__ == "__main__":
    facts = run()
    sys.stdout.write("\n" + json.dumps(facts) + "\n")
