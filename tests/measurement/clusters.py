"""What tests of clusters share."""

import contextlib
import os
import socket
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfplace.engines.sockets import SO_ATTACH_FILTER

FIRST, SECOND = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (0, 1))
SHORT_S = 1.0
CORES = [[core] for core in (sorted(os.sched_getaffinity(0)) * 2)[:2]]


def training_graph(first=FIRST, second=SECOND):
    """Two dense layers trained with momentum, one on each device; the parameters and what to run for a step."""
    rng = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        with tf.device(first):
            x = tf.constant(rng.normal(size=(64, 32)), tf.float32)
            w1 = variable("w1", rng.normal(size=(32, 48)))
            hidden = tf.tanh(x @ w1.read_value())
        with tf.device(second):
            y = tf.constant(rng.normal(size=(64, 8)), tf.float32)
            w2 = variable("w2", rng.normal(size=(48, 8)))
            loss = tf.reduce_mean(tf.square(hidden @ w2.read_value() - y))
            g_hidden, g2 = tf.gradients(loss, [hidden, w2])
        with tf.device(first):
            (g1,) = tf.gradients(hidden, [w1], [g_hidden])
        step = []
        for w, gradient, device in ((w1, g1, first), (w2, g2, second)):
            with tf.device(device):
                m = variable(f"{w.op.name}_m", np.zeros(w.shape))
                velocity = m.assign(0.9 * m.read_value() + gradient)
                step.append(w.assign_sub(0.1 * velocity).op)
        init = tf.compat.v1.global_variables_initializer()
    return graph, init, step, [w1, w2]


def variable(name, values):
    return tf.compat.v1.get_variable(name, initializer=np.float32(values), use_resource=True)


def one_op(build, device=SECOND):
    graph = tf.Graph()
    with graph.as_default(), tf.device(device):
        return graph, build()


def trained(cluster, steps=5):
    """Trains on the cluster; also how a test sees that it works."""
    graph, init, step, weights = training_graph()
    session = cluster.session(graph)
    try:
        session.run(init)
        run = session.make_callable(step)
        for _ in range(steps):
            run()
        return session.run(weights)
    finally:
        cluster.end_session(session)


def failure(cluster, call):
    with pytest.raises(Exception) as caught:
        call()
    found = cluster.failure_of(caught.value)
    assert found is not None, repr(caught.value)
    assert "\n" not in found.message
    return found


def running(pid):
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def soon(condition, within_s=60.0):
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def has_filter(listening):
    """Whether a socket has a filter, which the system copies to a buffer that is to be large enough."""
    return bool(listening.getsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, 256))
