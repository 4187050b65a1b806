"""Fits on two workers in a process of their own, as TensorFlow's connection to a cluster is for good; prints facts.

python -m tests.keras.fit_on_workers usual|stopped
"""

import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"}

import numpy as np
import tensorflow as tf

import tfplace
from tests.keras.fitting import X, Y, callback, devices_of, fit, keras_of, make_model
from tests.measurement.clusters import CORES, has_filter
from tests.pages import text
from tfplace.engines import sockets
from tfplace.errors import TfplaceError
from tfplace.execution import hosts
from tfplace.measurement.backends.processes import WorkerProcesses
from tfplace.measurement.backends.worker import Settings
from tfplace.testing import make_topology

TOPOLOGY = make_topology(2, types="CPU")
VALIDATED = {"validation_data": (X, Y)}


class Act:
    """Does something before a batch of training or validation."""

    def __init__(self, batch, act, hook="on_train_batch_begin"):
        keras = keras_of("keras")
        self.callback = keras.callbacks.LambdaCallback()
        count = iter(range(10**9))
        setattr(self.callback, hook, lambda *_, **__: next(count) == batch and act())


def on_workers(addresses, **arguments):
    return callback(**{"topology": TOPOLOGY, "placer": "heft", "slices": 1, "cluster": addresses, **arguments})


def same_numbers(addresses, package):
    """Of fits on local devices and on workers, with validation and a partial last batch."""
    seen = set()
    local, remote = (make_model(package) for _ in range(2))
    calls = callback(topology=TOPOLOGY, placer="round_robin"), on_workers(addresses, placer="round_robin")
    look = keras_of(package).callbacks.LambdaCallback(
        on_train_batch_end=lambda *_, **__: seen.update(full_devices(remote))
    )
    histories = fit(local, calls[0], **VALIDATED), fit(remote, calls[1], look, **VALIDATED)
    return {
        "histories": histories,
        "weights": all(map(np.array_equal, local.get_weights(), remote.get_weights())),
        "during": sorted(seen),
        "counts": calls[1].actual.counts,
        "moved": len(calls[1].actual.moved),
        "after": sorted(devices_of(remote)),
        "evaluate": [model.evaluate(X, Y, verbose=0) for model in (local, remote)],
        "predict": np.array_equal(local.predict(X, verbose=0), remote.predict(X, verbose=0)),
    }


def full_devices(model):
    tensors = [getattr(v, "value", v) for v in model.weights]
    return {(t() if callable(t) else t).device for t in tensors}


def error_of(call):
    began = time.monotonic()
    try:
        call()
    except (TfplaceError, KeyboardInterrupt) as error:
        told = {"type": type(error).__name__, "text": str(error), "took_s": time.monotonic() - began}
        return told | {"addresses": getattr(error, "addresses", None)}
    return None


def lost_and_resumed(addresses, workers, processes):
    """A worker is killed in the second epoch of four, comes back, and the same callback goes on."""
    keras = keras_of("keras")
    whole, parted = (make_model("keras") for _ in range(2))
    history = fit(whole, on_workers(addresses), epochs=4)
    before, call = parted.get_weights(), on_workers(addresses)
    with tempfile.TemporaryDirectory() as folder:
        kill = Act(8, workers[1].kill)
        backup = keras.callbacks.BackupAndRestore(folder, delete_checkpoint=True)
        error = error_of(lambda: fit(parted, call, backup, kill.callback, epochs=4))
        unchanged = all(map(np.array_equal, before, parted.get_weights()))
        evaluated = parted.evaluate(X, Y, verbose=0)
        workers[1] = workers[1].respawn(processes)
        backup = keras.callbacks.BackupAndRestore(folder)
        rest = fit(parted, call, backup, epochs=4)
    return {
        "error": error,
        "address": workers[1].address,
        "unchanged": unchanged,
        "evaluated": evaluated,
        "loss": history["loss"],
        "rest": rest["loss"],
        "weights": all(map(np.array_equal, whole.get_weights(), parted.get_weights())),
    }


def lost_in_validation(addresses, workers, processes):
    model = make_model("keras")
    kill = Act(2, workers[0].kill, "on_test_batch_begin")
    error = error_of(lambda: fit(model, on_workers(addresses), kill.callback, **VALIDATED))
    evaluated = model.evaluate(X, Y, verbose=0)
    workers[0] = workers[0].respawn(processes)
    return {"error": error, "address": workers[0].address, "evaluated": evaluated}


def interrupted(addresses):
    """Ctrl-C in a fit that would last for hours."""
    model, call = make_model("keras"), on_workers(addresses)
    began = Act(0, threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT)).start)
    error = error_of(lambda: fit(model, call, began.callback, epochs=10**6))
    call.restore()
    return {"error": error, "after": sorted(devices_of(model)), "left": len(tf.config.list_logical_devices())}


def refused(addresses):
    model = make_model("keras")
    plain, three = tf.function(lambda x: x + 1.0), make_topology(3, types="CPU")
    placement = tfplace.place(plain, TOPOLOGY, batch=(tf.TensorSpec((2,)),), budget=5, progress=False)
    sockets_wait, hosts.RETURN_S = hosts.RETURN_S, 0.2
    with contextlib.closing(__import__("socket").create_server(("127.0.0.1", 0))) as deaf:
        silent = f"127.0.0.1:{deaf.getsockname()[1]}"
        out = {"silent": error_of(lambda: fit(model, on_workers(f"{addresses[0]},{silent}")))}
    hosts.RETURN_S = sockets_wait
    out["three"] = error_of(lambda: fit(model, on_workers(addresses, topology=three)))
    out["one"] = error_of(lambda: tfplace.apply(plain, placement, (tf.TensorSpec((2,)),), cluster=addresses[:1]))
    out["after"] = sorted(devices_of(model))
    return out | {"address": silent}


def python_op(addresses):
    """A step with an op that calls Python of this process, all of whose other ops are on workers."""
    step = tf.function(lambda x: tf.py_function(lambda y: y + os.getpid(), [tf.square(x)], tf.float32) * 2.0)
    spec = (tf.TensorSpec((2,)),)
    placement = tfplace.place(step, TOPOLOGY, batch=spec, placer="round_robin", budget=5, progress=False)
    placed = tfplace.apply(step, placement, spec, cluster=",".join(addresses))
    found = placed(tf.constant([1.0, 2.0])).numpy().tolist()
    counts = placed.actual().counts
    placed.restore()
    return {"found": found, "pid": os.getpid(), "counts": counts}


def first_connection(addresses):
    """What was in the process before goes on; what TensorFlow would lose is refused."""
    variable, model = tf.Variable(1.0), make_model("keras")
    fit(model, epochs=1)
    before = model.evaluate(X, Y, verbose=0)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0)
    out = {"table": error_of(lambda: fit(model, on_workers(addresses)))}
    found = int(table.lookup(tf.constant("a")))
    del table
    hosts.listen_for(addresses)
    variable.assign(2.0)
    return out | {
        "found": found,
        "assigned": float(variable),
        "evaluated": [before, model.evaluate(X, Y, verbose=0)],
        "filtered": own_port_is_filtered(),
    }


def own_port_is_filtered():
    _, port = hosts._runtime._own
    return [has_filter(listening) for listening in sockets._listening(port)]


def page(addresses):
    """The code of the page, on these workers."""
    section = (
        text("docs/how_to/more_than_one_machine.md").partition("## Train over several hosts")[2].partition("\n## ")[0]
    )
    blocks = [block for block in re.findall(r"```text\n(.*?)```", section, re.DOTALL) if "import" in block]
    given = {"model": make_model("keras"), "x": X, "y": Y}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        TOPOLOGY.save("hosts.json")
        for block in blocks:
            code = block.replace("10.0.0.7:2222,10.0.0.8:2222", ",".join(addresses))
            exec(code.replace('"hosts.json"', '"hosts.json", budget=20, verbose=0'), given)
    return {"blocks": len(blocks), "steps": int(given["model"].optimizer.iterations)}


def stopped(addresses, workers):
    hosts.LOST_S = 1.0
    model = make_model("keras")
    stop = Act(8, lambda: os.kill(workers[1].pid, signal.SIGSTOP))
    error = error_of(lambda: fit(model, on_workers(addresses), stop.callback))
    os.kill(workers[1].pid, signal.SIGCONT)
    history = fit(model, on_workers(addresses))
    return {"error": error, "address": addresses[1], "again": len(history["loss"])}


def main(what):
    tf.config.threading.set_intra_op_parallelism_threads(1)  # as the workers have, so that sums have the same order
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    processes = WorkerProcesses()
    workers = processes.launch([Settings(cores=tuple(cores)) for cores in CORES])
    addresses = [worker.address for worker in workers]
    if what == "stopped":
        facts = stopped(addresses, workers)
    else:
        facts = {"first": first_connection(addresses)}
        facts |= {package: same_numbers(addresses, package) for package in ("keras", "tf_keras")}
        facts["refused"], facts["python"] = refused(addresses), python_op(addresses)
        facts["lost"] = lost_and_resumed(addresses, workers, processes)
        facts["validation"] = lost_in_validation(addresses, workers, processes)
        facts["interrupted"], facts["page"] = interrupted(addresses), page(addresses)
    processes.close()
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
