"""Which outputs of an op are an input, or may take one over: the tables against the addresses of a real run.

TensorFlow's tracer gives the address of every output. Inputs are random numbers, which nothing else holds.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tfplace.core.buffers import ALIASES_OF_ITS_SIZE, FIRST_ALIASES_FIRST, FORWARDS, ROWS, aliases, reads_that_copy
from tfplace.extraction.tf_internals import op_def

tf1, raw = tf.compat.v1, tf.raw_ops
SHAPE = (64, 128)


def fresh(shape=SHAPE, dtype=tf.float32):
    return tf.cast(tf1.random_uniform(shape, 0.1, 0.9), dtype)


def run(make):
    """[(output, input, whether at its very beginning)] of the addresses shared, for an op that `make` makes."""
    with tf.Graph().as_default() as graph:
        inputs, outputs = make()
        outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        read = [tf.identity(output).op for output in outputs]  # what nothing reads, some ops do not make
        config = tf1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf1.Session(graph=graph, config=config) as session:
            metadata = tf1.RunMetadata()
            options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
            session.run(read, options=options, run_metadata=metadata)
    memory = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            for out in node.output:
                description = out.tensor_description.allocation_description
                memory[f"{node.node_name}:{out.slot}"] = description.ptr, description.requested_bytes
    shared = set()
    for k, output in enumerate(outputs):
        for j, tensor in enumerate(inputs):
            (at, size), (begin, whole) = memory[output.name], memory[tensor.name]
            if size and begin <= at < begin + whole:
                shared.add((k, j))
    return shared


ARGUMENTS = {
    "BiasAdd": lambda: ([x := fresh()], raw.BiasAdd(value=x, bias=fresh((128,)))),
    "ClipByValue": lambda: ([x := fresh()], raw.ClipByValue(t=x, clip_value_min=0.2, clip_value_max=0.5)),
    "Invert": lambda: ([x := fresh(dtype=tf.int32)], raw.Invert(x=x)),
    "LogicalNot": lambda: ([x := fresh() > 0.5], raw.LogicalNot(x=x)),
    "MatrixBandPart": lambda: ([x := fresh()], raw.MatrixBandPart(input=x, num_lower=-1, num_upper=0)),
    "MatrixSetDiag": lambda: ([x := fresh()], raw.MatrixSetDiag(input=x, diagonal=fresh((64,)))),
    "AddN": lambda: ([x := fresh(), y := fresh()], raw.AddN(inputs=[x, y])),
    "SoftmaxCrossEntropyWithLogits": lambda: (
        [x := fresh()],
        raw.SoftmaxCrossEntropyWithLogits(features=x, labels=fresh()),
    ),
    "SparseSoftmaxCrossEntropyWithLogits": lambda: (
        [x := fresh()],
        raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=tf1.random_uniform((64,), 0, 128, tf.int32)),
    ),
    "Select": lambda: ([c := fresh() > 0.5, x := fresh(), y := fresh()], raw.Select(condition=c, x=x, y=y)),
    "SelectV2": lambda: ([c := fresh() > 0.5, x := fresh(), y := fresh()], raw.SelectV2(condition=c, t=x, e=y)),
}
"""Op type -> its inputs and outputs, where there is more to an op than one or two tensors of one shape."""


def made(kind):
    if kind in ARGUMENTS:
        return ARGUMENTS[kind]

    def make():
        definition = op_def(kind)
        values = [fresh() for _ in definition.input_arg]
        names = {arg.name: value for arg, value in zip(definition.input_arg, values, strict=True)}
        return values, getattr(raw, kind)(**names)

    return make


@pytest.mark.parametrize("kind", sorted(FORWARDS))
def test_an_op_takes_over_what_nothing_else_holds(kind):
    slot, positions = FORWARDS[kind]
    shared = run(made(kind))
    assert {k for k, _ in shared} == {slot}
    assert positions is None or {j for _, j in shared} <= {*positions}


@pytest.mark.parametrize("kind", ["IsNan", "Cumsum", "L2Loss", "DeepCopy"])
def test_other_ops_make_new_tensors(kind):
    assert run(made(kind) if kind != "Cumsum" else lambda: ([x := fresh()], raw.Cumsum(x=x, axis=1))) == set()


def test_an_op_takes_over_nothing_that_something_else_holds():
    def make():
        x = fresh()
        with tf.control_dependencies([y := raw.Relu(features=x)]):
            later = raw.MatMul(a=x, b=y, transpose_b=True)
        return [x], [y, later]

    assert run(make) == set()


VIEWS = {
    "Bitcast": lambda x: raw.Bitcast(input=x, type=tf.int32),
    "BroadcastTo": lambda x: raw.BroadcastTo(input=x, shape=SHAPE),
    "CheckNumerics": lambda x: raw.CheckNumerics(tensor=x, message=""),
    "EnsureShape": lambda x: raw.EnsureShape(input=x, shape=SHAPE),
    "ExpandDims": lambda x: raw.ExpandDims(input=x, axis=0),
    "Identity": lambda x: raw.Identity(input=x),
    "IdentityN": lambda x: raw.IdentityN(input=[x]),
    "Pack": lambda x: raw.Pack(values=[x], axis=0),
    "Pad": lambda x: raw.Pad(input=x, paddings=[[0, 0], [0, 0]]),
    "PreventGradient": lambda x: raw.PreventGradient(input=x),
    "Reshape": lambda x: raw.Reshape(tensor=x, shape=[128, 64]),
    "Slice": lambda x: raw.Slice(input=x, begin=[8, 0], size=[16, 128]),
    "Snapshot": lambda x: raw.Snapshot(input=x),
    "Split": lambda x: raw.Split(axis=0, value=x, num_split=4),
    "SplitV": lambda x: raw.SplitV(value=x, size_splits=[16, 48], axis=0, num_split=2),
    "Squeeze": lambda x: raw.Squeeze(input=x),
    "StopGradient": lambda x: raw.StopGradient(input=x),
    "StridedSlice": lambda x: x[8],
    "Sum": lambda x: raw.Sum(input=raw.Reshape(tensor=x, shape=(64, 1, 128)), axis=1),
    "Switch": lambda x: raw.Switch(data=x, pred=True)[1],
    "Tile": lambda x: raw.Tile(input=x, multiples=[1, 1]),
    "Unpack": lambda x: raw.Unpack(value=x, num=64, axis=0),
}
COPIES = {
    "BroadcastTo": lambda x: raw.BroadcastTo(input=x, shape=(2, *SHAPE)),
    "Pack": lambda x: raw.Pack(values=[x, x], axis=0),
    "Pad": lambda x: raw.Pad(input=x, paddings=[[0, 1], [0, 0]]),
    "Slice": lambda x: raw.Slice(input=x, begin=[0, 0], size=[64, 64]),
    "Split": lambda x: raw.Split(axis=1, value=x, num_split=4),
    "SplitV": lambda x: raw.SplitV(value=x, size_splits=[16, 112], axis=1, num_split=2),
    "StridedSlice": lambda x: x[::2],
    "Sum": lambda x: raw.Sum(input=x, axis=1),
    "Tile": lambda x: raw.Tile(input=x, multiples=[1, 2]),
    "Unpack": lambda x: raw.Unpack(value=raw.Reshape(tensor=x, shape=(64, 2, 64)), num=2, axis=1),
}


def as_graph(change):
    return tfplace.extract(tf.function(change), (tf.TensorSpec(SHAPE),))


@pytest.mark.parametrize(
    ("change", "views"), [*((c, True) for c in VIEWS.items()), *((c, False) for c in COPIES.items())]
)
def test_what_is_a_view_is_one_in_a_real_run(change, views):
    kind, function = change

    def make():
        x = fresh()
        return [x], function(x)

    assert bool(run(make)) is views
    graph = as_graph(lambda x: function(tf.abs(x)))
    found = [v for v, op in enumerate(graph.op_types) if op == kind]
    if found:  # what changes nothing may be dropped when the graph is read
        told = aliases(graph)[graph.op_tensors[found[-1]] : graph.op_tensors[found[-1] + 1]]
        assert (told >= 0).all() if views else (told < 0).all()


def test_every_rule_about_views_is_tried():
    only_flow = {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "RefSwitch", "ReadVariableOp"}
    lists = {kind for kind in FIRST_ALIASES_FIRST if kind.startswith("TensorList")}
    old = {kind for kind in FIRST_ALIASES_FIRST if kind.startswith(("Ref", "Assign"))}
    rare = {"CheckNumericsV2", "PlaceholderWithDefault"}
    assert FIRST_ALIASES_FIRST - only_flow - lists - old - rare <= {*VIEWS}
    assert {*VIEWS} & {*COPIES} >= ROWS
    assert {"BroadcastTo", "Pad", "Sum", "Tile"} <= ALIASES_OF_ITS_SIZE & {*VIEWS} & {*COPIES}


def test_elements_of_lists_are_what_was_pushed():
    def pushed():
        x = fresh()
        empty = raw.EmptyTensorList(element_shape=SHAPE, max_num_elements=-1, element_dtype=tf.float32)
        held = raw.TensorListPushBack(input_handle=empty, tensor=x)
        return [x], raw.TensorListPopBack(input_handle=held, element_shape=SHAPE, element_dtype=tf.float32)[1]

    def written():
        x = fresh()
        empty = raw.TensorListReserve(element_shape=SHAPE, num_elements=3, element_dtype=tf.float32)
        held = raw.TensorListSetItem(input_handle=empty, index=1, item=x)
        return [x], raw.TensorListGetItem(input_handle=held, index=1, element_shape=SHAPE, element_dtype=tf.float32)

    def unstacked():
        x = fresh()
        rows = raw.TensorListFromTensor(tensor=x, element_shape=SHAPE[1:])
        return [x], raw.TensorListGetItem(input_handle=rows, index=3, element_shape=[128], element_dtype=tf.float32)

    assert run(pushed) == {(0, 0)} and run(written) == {(0, 0)}
    assert run(unstacked) == set()


# ---- variables -----------------------------------------------------------------------------------------------------


def allocated(step, *arguments):
    """Bytes that the reads and the dense writes of a step allocated, the second time it ran."""
    from tfplace.measurement.backends.local import LocalDevices
    from tfplace.measurement.backends.program import StepGraph
    from tfplace.measurement.backends.running import Running

    graph = tfplace.extract(step, arguments)
    program = StepGraph(graph)
    program.place(dict.fromkeys(graph.op_names, "/job:localhost/replica:0/task:0/device:CPU:0"))
    running = Running(program, LocalDevices(), None)
    try:
        running()
        stats = running.traced().step_stats
    finally:
        running.close()
    out = dict.fromkeys(("ReadVariableOp", "AssignSubVariableOp"), 0)
    for node in (node for device in stats.dev_stats for node in device.node_stats):
        kind = graph.op_types[graph.index[node.node_name]] if node.node_name in graph.index else ""
        if kind in out and graph.op_types[graph.index[node.node_name]] == kind:
            out[kind] += sum(memory.total_bytes for memory in node.memory)
    return graph, out


def test_a_dense_read_of_a_variable_whose_rows_are_written_copies_it():
    table = tf.Variable(tf.zeros((1000, 64)))

    @tf.function
    def dense(i):
        return tf.reduce_sum(tf.gather(table.read_value(), i))

    @tf.function
    def scattering(i):
        out = tf.reduce_sum(tf.gather(table.read_value(), i))
        with tf.control_dependencies([out]):
            table.scatter_sub(tf.IndexedSlices(tf.ones((4, 64)), i))
        return out

    spec, size = tf.TensorSpec((4,), tf.int32), 1000 * 64 * 4
    graph, took = allocated(dense, spec)
    assert took["ReadVariableOp"] == 0 and not reads_that_copy(graph)
    graph, took = allocated(scattering, spec)
    assert took["ReadVariableOp"] == size
    assert [graph.op_types[v] for v in reads_that_copy(graph)] == ["ReadVariableOp"]

    problem = tfplace.formulate(graph, "2xP100")
    cost = tfplace.simulate(problem, dict.fromkeys(graph.op_names, "CPU:0"))
    assert cost.peak_bytes.max() == pytest.approx(2 * size, rel=0.05)
    (read,) = reads_that_copy(graph)
    cpu = problem.topology.index("CPU:0")
    moved = 2 * size / problem.topology.devices[cpu].memory_bandwidth
    assert problem.costs.compute_s[read, cpu] >= moved


def test_a_dense_write_copies_a_variable_that_is_still_read():
    weights = tf.Variable(tf.ones((256, 256)))

    @tf.function
    def written_last(x):
        with tf.control_dependencies([y := tf.reduce_sum(x @ weights)]):
            weights.assign_sub(tf.fill((256, 256), y))

    @tf.function
    def written_first(x):
        read = weights.read_value()
        with tf.control_dependencies([read]):
            write = weights.assign_sub(tf.fill((256, 256), tf.reduce_sum(x)))
        with tf.control_dependencies([write]):
            return tf.reduce_sum(x @ read)

    size = 256 * 256 * 4
    peaks = {}
    for step, copied in ((written_last, 0), (written_first, size)):
        graph, took = allocated(step, tf.TensorSpec((4, 256)))
        assert took["AssignSubVariableOp"] == copied
        problem = tfplace.formulate(graph, "2xP100")
        peaks[copied] = tfplace.simulate(problem, dict.fromkeys(graph.op_names, "CPU:0")).peak_bytes.max()
    assert peaks[0] == pytest.approx(2 * size, rel=0.05)
    assert peaks[size] == pytest.approx(3 * size, rel=0.05)


def test_handles_are_known_where_they_are_passed_on():
    table = tf.Variable(tf.zeros((10, 4)))

    @tf.function
    def step(i):
        for _ in tf.range(3):
            table.scatter_sub(tf.IndexedSlices(tf.ones((2, 4)) * tf.reduce_sum(table), i))

    graph = tfplace.extract(step, (tf.TensorSpec((2,), tf.int32),))
    assert len(reads_that_copy(graph)) == 1
    assert not reads_that_copy(
        dataclasses.replace(
            graph, op_types=tuple("NoOp" if kind == "ResourceScatterSub" else kind for kind in graph.op_types)
        )
    )
    assert np.flatnonzero(aliases(graph) >= 0).size
