"""A step imported for measuring does what the program's own step does, and leaves the program alone."""

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.execution import step_models
from tests.placing import random_placement
from tfplace.errors import ApplyError, GraphError
from tfplace.execution.devices import canonical
from tfplace.measurement.backends.local import LocalDevices
from tfplace.measurement.backends.program import StepGraph, _parts
from tfplace.testing import make_graph

STEPS = 3
CPUS = ["CPU:0", "CPU:1", "CPU:2"]
v1 = tf.compat.v1


def _devices(graph, seed=0):
    return {op: canonical(d) for op, d in random_placement(graph, CPUS, seed).devices.items()}


def _run(program, devices, steps=STEPS):
    """Variables after some steps in a session of their own."""
    program.place(devices)
    backend = LocalDevices()
    session = backend.session(program.tf_graph)
    program.write(session)
    step = session.make_callable(program.targets)
    for _ in range(steps):
        step()
    values = program.read(session)
    backend.end_session(session)
    return values


def _train(source, batch):
    """The program's own steps."""
    tensors = tf.nest.map_structure(tf.constant, batch)
    if isinstance(source, tf.types.experimental.PolymorphicFunction):
        for _ in range(STEPS):
            source(*tensors)
    else:
        step = tf.function(source.train_step)
        for _ in range(STEPS):
            step(tensors)


@pytest.mark.parametrize("model", [pytest.param("inception_like", marks=pytest.mark.slow), "lstm_while", "sonnet_mlp"])
def test_trains_as_the_plain_program_does(model):
    source, (batch, *_) = step_models.build(model)
    graph = tfplace.extract(source, batch)
    variables = graph.origin.variables()
    first = {op: v.numpy() for op, v in variables.items()}
    values = _run(StepGraph(graph, batch), _devices(graph))
    for op, variable in variables.items():
        np.testing.assert_array_equal(variable.numpy(), first[op])
    _train(source, batch)
    assert set(values) == set(variables)
    changed = [op for op in values if not np.array_equal(values[op], first[op])]
    assert len(changed) > len(values) / 3
    for op, value in values.items():
        np.testing.assert_allclose(value, variables[op].numpy(), rtol=2e-3, atol=2e-3, err_msg=op)


def _tf1(path):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (4, 3), name="x")
        w = v1.get_variable("w", (3, 2), use_resource=False, initializer=v1.constant_initializer(0.3))
        b = v1.get_variable("b", (2,), use_resource=True, initializer=v1.constant_initializer(0.1))
        y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y) + b), (0, tf.matmul(x, w) + b))[1]
        step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(tf.square(y - 1.0)), name="train")
        v1.add_to_collection("train_op", step)
        v1.train.export_meta_graph(str(path))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            batch = np.random.default_rng(0).random((4, 3), np.float32)
            for _ in range(STEPS):
                session.run(step, {x: batch})
            return batch, session.run({v.op.name: v for v in v1.global_variables()})


def test_trains_as_the_file_with_a_loop_does(tmp_path):
    batch, plain = _tf1(tmp_path / "model.meta")
    graph = tfplace.extract(str(tmp_path / "model.meta"))
    values = _run(StepGraph(graph, {"x": batch}), _devices(graph))
    assert set(values) == set(plain) == {"w", "b", "w/Momentum", "b/Momentum"}
    for op, value in values.items():
        np.testing.assert_allclose(value, plain[op], rtol=1e-5)


@pytest.fixture(scope="module")
def towers(logical_cpus):
    """Variables that count steps and hold what was read: u += x + n, with an argument of integers."""
    u = tf.Variable(tf.zeros((3,)), name="u")
    count = tf.Variable(0, dtype=tf.int64, name="count")

    @tf.function
    def step(x, n):
        count.assign_add(1)
        u.assign_add(x + tf.cast(n, tf.float32))

    return tfplace.extract(step, (tf.TensorSpec((3,)), tf.TensorSpec((), tf.int32)))


def test_placed_again_and_again_from_the_first_values(towers):
    program = StepGraph(towers, (np.array([1.0, 2.0, 3.0]), np.array(4)))
    for seed in range(3):
        values = sorted(_run(program, _devices(towers, seed), 5).values(), key=np.size)
        assert values[0] == 5
        np.testing.assert_allclose(values[1], [25, 30, 35])


def test_writing_takes_a_running_session_back_to_the_beginning(towers):
    program = StepGraph(towers, (np.ones(3), np.array(0)))
    program.place(_devices(towers))
    session = LocalDevices().session(program.tf_graph)
    for _ in range(2):
        program.write(session)
        session.run(program.targets)
        assert min(program.read(session).values(), key=np.size) == 1
    session.close()


def test_a_twin_is_placed_apart(towers):
    program = StepGraph(towers, (np.ones(3), np.array(1)))
    twin = program.twin()
    program.place(dict.fromkeys(towers.op_names, canonical("CPU:0")))
    twin.place(dict.fromkeys(towers.op_names, canonical("CPU:1")))
    name = towers.op_names[0]
    assert program.op(name).device == canonical("CPU:0") and twin.op(name).device == canonical("CPU:1")
    assert program.tf_graph is not twin.tf_graph
    values = _run(twin, _devices(towers))
    assert min(values.values(), key=np.size) == STEPS


def test_arguments_a_gpu_cannot_hold_stay_on_its_host(towers):
    """Looked at only: kernels of GPUs are known without one."""
    program = StepGraph(towers, (np.ones(3), np.array(1)))
    gpu = "/job:worker/replica:0/task:2/device:GPU:1"
    program.place(dict.fromkeys(towers.op_names, gpu))
    assert [program.op(op).device for op in ("x", "x/tfplace_fed")] == [gpu] * 2
    host = "/job:worker/replica:0/task:2/device:CPU:0"
    assert [program.op(op).device for op in ("n", "n/tfplace_fed")] == [host] * 2


def test_a_default_is_kept_or_replaced():
    with tf.Graph().as_default() as g:
        d = v1.placeholder_with_default(tf.constant([1.0, 2.0]), (2,), name="d")
        w = v1.get_variable("w", (2,), use_resource=True, initializer=v1.zeros_initializer())
        tf.identity(w.assign_add(d), name="y")
        meta = v1.train.export_meta_graph(graph=g)
    from tfplace.extraction.metagraph import graph_from_metagraph

    graph = graph_from_metagraph(meta, name="d", description="", fetches=("y",))
    assert _run(StepGraph(graph), _devices(graph), 2)["w"].tolist() == [2, 4]
    assert _run(StepGraph(graph, {"d": np.full(2, 5.0)}), _devices(graph), 2)["w"].tolist() == [10, 10]


def test_variables_of_a_file_without_values_are_zero():
    with tf.Graph().as_default() as g:
        w = v1.get_variable("w", (2,), use_resource=True)
        r = v1.get_variable("r", (3,), tf.int32, use_resource=False)
        tf.group(w.assign_add([1.0, 2.0]), v1.assign_add(r, [1, 2, 3]), name="y")
        graph = tfplace.extract(g.as_graph_def(), fetches=("y",))
    values = _run(StepGraph(graph), _devices(graph), 2)
    assert values["w"].tolist() == [2, 4] and values["r"].tolist() == [2, 4, 6]


def test_values_are_written_in_parts():
    mega = np.zeros(2**20 // 4, np.float32)
    values = {str(i): np.broadcast_to(mega, (100, len(mega))) for i in range(5)}
    assert [list(part) for part in _parts(values)] == [["0", "1"], ["2", "3"], ["4"]]
    assert [list(part) for part in _parts({"a": np.broadcast_to(mega, (300, len(mega))), "b": 1})] == [["a"], ["b"]]
    assert list(_parts({})) == []


def test_graphs_that_cannot_run_are_refused():
    with pytest.raises(GraphError, match="plain arrays"):
        StepGraph(make_graph({"a": 4}))

    class Origin:
        description = "a file of another program"

        def metagraph(self, devices=None):
            return tfplace.extract(tf.function(lambda x: x + 1), (tf.TensorSpec(()),)).metagraph()

    import dataclasses

    plain = tfplace.extract(tf.function(lambda x: x + 1), (tf.TensorSpec(()),))
    with pytest.raises(ApplyError, match="without a TensorFlow program"):
        StepGraph(dataclasses.replace(plain, origin=Origin()))
