"""MetaGraphDefs: written from a flat graph, read from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tfplace.core.graph import OpGraph
from tfplace.errors import SourceError, near_names
from tfplace.extraction.batch import check_shape
from tfplace.extraction.flatten import clean, colocation_groups, shorten
from tfplace.extraction.graph_check import check_graph_def
from tfplace.extraction.nodes import Nodes, parse_input
from tfplace.extraction.opgraph import build_graph
from tfplace.extraction.shapes import element_bytes
from tfplace.extraction.tf_internals import saved_variable_name

STEP_OP = "tfplace_step"
SIGNATURE = "tfplace"

REFERENCE_VARIABLES = {"VariableV2", "Variable"}
_HANDLE_OPS = {"VarHandleOp", *REFERENCE_VARIABLES}
_ASSIGNS = {"Assign", "AssignVariableOp"}
_SAVING = {"SaveV2", "RestoreV2", "MergeV2Checkpoints"}
INPUT_OPS = {"Placeholder", "PlaceholderWithDefault"}


def step_metagraph(
    graph_def: Any,
    fetches: Sequence[str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    devices: Mapping[str, str] | None,
) -> Any:
    """A MetaGraphDef that `tf.compat.v1.train.import_meta_graph` and Grappler's `Item` accept.

    It ends in one op, "tfplace_step", which runs the whole step and is the `train_op` collection; signature "tfplace"
    names the arguments and results.

    Args:
      graph_def: a flat graph without captures; changed in place.
      fetches: op names the step must run.
      inputs: names of the argument ops.
      outputs: names "op:k" of the results.
      devices: op name -> device to write into the nodes, in full or short as "GPU:0"; or None.
    """
    write_devices(graph_def, devices)
    nodes = {node.name: node for node in graph_def.node}
    if STEP_OP not in nodes:
        step = graph_def.node.add()
        step.name, step.op = STEP_OP, "NoOp"
        step.input.extend(f"^{name}" for name in sorted(set(fetches)))
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    meta.meta_info_def.tensorflow_version = tf.__version__
    meta.collection_def["train_op"].node_list.value.append(STEP_OP)
    signature = meta.signature_def[SIGNATURE]
    for i, op in enumerate(inputs):
        node = nodes[op]
        signature.inputs[f"input_{i}"].name = f"{op}:0"
        signature.inputs[f"input_{i}"].dtype = node.attr["dtype"].type
        signature.inputs[f"input_{i}"].tensor_shape.CopyFrom(node.attr["shape"].shape)
    for i, tensor in enumerate(outputs):
        signature.outputs[f"output_{i}"].name = tensor
    return meta


def write_devices(graph_def: Any, devices: Mapping[str, str] | None) -> None:
    """Writes devices into nodes, in place: op name -> device, in full or short as "GPU:0"; those of other ops stay."""
    for node in graph_def.node if devices else ():
        device = (devices or {}).get(node.name)
        if device is not None:
            node.device = device if device.startswith("/") else f"/device:{device}"


@dataclass(frozen=True, eq=False)
class GraphOrigin:
    """A graph that came from a file.

    Attributes:
      source: the MetaGraphDef as read.
      graph_def: the flat graph, cleaned.
      fetches: op names the step must run.
      inputs: names of the placeholders left in it.
      outputs: names "op:k" of the results the file's signature names; empty if it names none.
      description: one line for people.
      checkpoint: prefix of the checkpoint that holds the variables' values; "" if the file has initializers instead.
    """

    source: Any
    graph_def: Any
    fetches: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    description: str
    checkpoint: str = ""

    def metagraph(self, devices: Mapping[str, str] | None = None) -> Any:
        """The flat graph as a MetaGraphDef."""
        graph_def = tf.compat.v1.GraphDef()
        graph_def.CopyFrom(self.graph_def)
        return step_metagraph(graph_def, self.fetches, self.inputs, self.outputs, devices)


def read_metagraph(path: str | Path) -> Any:
    """Reads a `.meta`, `.pb` or `.pbtxt` file as a MetaGraphDef; a bare GraphDef is wrapped in one.

    Raises:
      SourceError: neither kind of graph.
    """
    path = Path(path)
    data = path.read_bytes()
    for kind in (tf.compat.v1.MetaGraphDef, tf.compat.v1.GraphDef):
        message = kind()
        try:
            if path.suffix in (".pbtxt", ".txt", ".prototxt"):
                text_format.Parse(data.decode(), message)
            else:
                message.ParseFromString(data)
        except (DecodeError, text_format.ParseError, ValueError, RecursionError):
            continue
        meta = message if isinstance(message, tf.compat.v1.MetaGraphDef) else _wrap(message)
        if meta.graph_def.node:
            return meta
        if not data.strip() or (not meta.ListFields() and not message.ListFields()):
            continue
        if isinstance(message, tf.compat.v1.GraphDef):
            raise SourceError(f"{path.name}, a graph without ops", "a graph with at least one op")
    raise SourceError(
        f"{path.name}, which is not a graph",
        "a MetaGraphDef (.meta) or GraphDef (.pb binary, .pbtxt text), or a SavedModel directory",
    )


def _wrap(graph_def: Any) -> Any:
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    return meta


def graph_from_metagraph(
    meta: Any,
    *,
    name: str,
    description: str,
    fetches: Sequence[str] | None = None,
    shapes: Mapping[str, Any] | None = None,
    checkpoint: str = "",
) -> OpGraph:
    """Flattens a MetaGraphDef and describes it as an OpGraph.

    Args:
      meta: the MetaGraphDef.
      name: the graph's name.
      description: one line about where it came from.
      fetches: names of the ops the step must run; by default the `train_op` collection, else the outputs of the file's
        signatures, else every op whose result no other op reads (initializers and savers left out).
      shapes: placeholder name -> `tf.TensorShape`, or what makes one.
      checkpoint: prefix of the checkpoint with the variables' values, if there is one.

    Raises:
      SourceError: unknown ops, no ops, or fetches that are not there.
    """
    outputs = _signature_outputs(meta)
    check_graph_def(meta.graph_def, outputs)  # before native code sees it
    nodes = Nodes(meta.graph_def)  # refuses unknown ops and cycles
    chosen = tuple(fetches) if fetches else _default_fetches(meta, nodes, outputs)
    for fetch in chosen:
        if fetch not in nodes.index:
            near = near_names(fetch, nodes.names)
            raise SourceError(f"fetch {fetch!r}", "the name of an op in the graph", f"Near names: {', '.join(near)}")
    source = tf.compat.v1.GraphDef()
    source.CopyFrom(meta.graph_def)
    flat = shorten(source, chosen)
    clean(flat)
    shapes = shapes or {}
    for node in flat.node:
        if node.name in shapes:
            given, declared = tf.TensorShape(shapes[node.name]), tf.TensorShape(node.attr["shape"].shape)
            if declared.rank:  # without dimensions a placeholder may have any
                check_shape(node.name, given, declared)
            node.attr["shape"].shape.CopyFrom(given.as_proto())
    inputs = tuple(node.name for node in flat.node if node.op in INPUT_OPS)
    kept = {node.name for node in flat.node}
    outputs = tuple(o for o in outputs if parse_input(o)[0] in kept)
    return build_graph(
        flat,
        name=name,
        fetches=chosen,
        variables=_file_variables(flat, meta),
        inference_def=flat,
        colocation=colocation_groups(meta.graph_def),
        batch_size=_first_dimension(flat),
        origin=GraphOrigin(meta, flat, chosen, inputs, outputs, description, checkpoint),
    )


def _signature_outputs(meta: Any) -> tuple[str, ...]:
    infos = (info for signature in meta.signature_def.values() for info in signature.outputs.values())
    return tuple(dict.fromkeys(info.name for info in infos if info.name))


def _default_fetches(meta: Any, nodes: Nodes, outputs: Sequence[str]) -> tuple[str, ...]:
    train = (
        [parse_input(n)[0] for n in meta.collection_def["train_op"].node_list.value]
        if "train_op" in meta.collection_def
        else []
    )
    named = [n for n in dict.fromkeys((*train, *(parse_input(o)[0] for o in outputs))) if n in nodes.index]
    if named:
        return tuple(named)
    read = {u for v in nodes.order for u, _ in nodes.data_inputs[v]} | {
        u for v in nodes.order for u in nodes.control_inputs[v]
    }
    sinks = [nodes.names[v] for v in nodes.order if v not in read and not _is_bookkeeping(nodes, v, meta)]
    return tuple(sinks or [nodes.names[v] for v in nodes.order if v not in read])


def _is_bookkeeping(nodes: Nodes, v: int, meta: Any) -> bool:
    """Initializers and savers: sinks of a TF1 graph that no training step runs."""
    saver = meta.saver_def
    if nodes.names[v] in (saver.restore_op_name, saver.save_tensor_name.partition(":")[0]):
        return True
    if nodes.types[v] == "NoOp":
        # `tf.global_variables_initializer()` waits for assignments of initial values, what restores for those of saved
        # ones; where they are on several devices, for a NoOp of each.
        return all(_is_bookkeeping(nodes, u, meta) for u in nodes.control_inputs[v])
    if nodes.types[v] == "Identity":  # the saver's result: the file's name, once it is written
        return any(nodes.types[u] in _SAVING for u in nodes.control_inputs[v])
    return nodes.types[v] in _SAVING or _is_initial(nodes, v) or _is_restored(nodes, v)


def _is_restored(nodes: Nodes, v: int) -> bool:
    """Whether an op assigns what was read from a checkpoint."""
    if nodes.types[v] not in _ASSIGNS:
        return False
    value, _ = nodes.data_inputs[v][1]
    while nodes.types[value] == "Identity":
        value, _ = nodes.data_inputs[value][0]
    return bool(nodes.types[value] == "RestoreV2")


def _is_initial(nodes: Nodes, v: int) -> bool:
    """Whether an op is the assignment that is made with a variable; its name is then taken for any later one."""
    if nodes.types[v] not in _ASSIGNS:
        return False
    variable, _ = nodes.data_inputs[v][0]
    return nodes.names[v] == f"{nodes.names[variable]}/Assign"


def _file_variables(flat: Any, meta: Any) -> dict[str, tuple[str, int, bool]]:
    trainable = set()
    if "trainable_variables" in meta.collection_def:
        saved = meta.collection_def["trainable_variables"].bytes_list.value
        trainable = {parse_input(_variable_name(data))[0] for data in saved}
    out = {}
    for node in flat.node:
        if node.op in _HANDLE_OPS:
            shape = tf.TensorShape(node.attr["shape"].shape)
            elements = shape.num_elements() if shape.is_fully_defined() else 1
            dtype = tf.dtypes.as_dtype(node.attr["dtype"].type)
            out[node.name] = (node.name, elements * element_bytes(dtype), node.name in trainable)
    return out


def _variable_name(data: bytes) -> str:
    try:
        return saved_variable_name(data)
    except DecodeError as error:
        raise SourceError(
            f"a collection 'trainable_variables' with {data[:20]!r}",
            "VariableDefs",
            "The file may be damaged: write it again.",
        ) from error


def _first_dimension(flat: Any) -> int:
    for node in flat.node:
        if node.op in INPUT_OPS:
            shape = tf.TensorShape(node.attr["shape"].shape)
            if shape.rank and shape[0]:
                return int(shape[0])
    return 1
