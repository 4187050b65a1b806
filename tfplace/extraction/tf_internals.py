"""Every private TensorFlow name that tfplace uses, with the reason why no public name serves."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue as _AttrValue
from tensorflow.core.framework.variable_pb2 import VariableDef as _VariableDef
from tensorflow.core.function.trace_type.default_types import Literal as _Literal
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as _SavedModel
from tensorflow.python.data.ops.structured_function import StructuredFunctionWrapper as _StructuredFunctionWrapper
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction as _ConcreteFunction
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function as _PolymorphicFunction
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import importer as _importer
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.ops import handle_data_util as _handle_data


def op_def(op_type: str) -> Any:
    """The `OpDef` of a registered op type, or None. `tf.raw_ops` has the functions but not the definitions.

    TensorFlow keeps those it has found; one that is absent now may come with a library that is loaded later.
    """
    return _op_def_registry.get(op_type)


def registered_kernels(op_type: str) -> tuple[Any, ...]:
    """The `KernelDef`s of an op type, GPU ones included where the build has them; there is no public listing."""
    return tuple(_kernels.get_registered_kernels_for_op(op_type).kernel)


def empty_saved_model() -> Any:
    """A message that `saved_model.pb` can be read into; of these messages `tf.compat.v1` lacks this one too."""
    return _SavedModel()


def saved_variable_name(data: bytes) -> str:
    """Name of a variable in a MetaGraphDef's collection; of these messages `tf.compat.v1` lacks only this one."""
    return str(_VariableDef.FromString(data).variable_name)


# ---- building a function from a graph ----------------------------------------------------------------------------


def import_function_graph(graph_def: Any, name: str) -> Any:
    """A `FuncGraph` with the nodes of a `GraphDef`.

    `tf.import_graph_def` checks colocation and refuses placed graphs, `tf.compat.v1.wrap_function` drops control
    outputs and returns lists. Functions the graph calls are registered first: calling an unregistered one crashes.
    """
    eager = _context.context()
    for function in graph_def.library.function:
        if not eager.has_function(function.signature.name):
            eager.add_function_def(function)
    open_handles = tf.compat.v1.GraphDef()
    open_handles.CopyFrom(graph_def)
    for node in open_handles.node:
        if node.op == "Placeholder" and node.attr["dtype"].type == tf.resource.as_datatype_enum:
            # What is behind a handle is not part of a GraphDef. Without it, ResourceGatherNd and its like take the
            # handle's own shape, of a scalar, for the variable's, and refuse to be imported.
            node.attr["shape"].shape.unknown_rank = True
    graph = _func_graph.FuncGraph(name)
    with graph.as_default():
        _importer.import_graph_def_for_function(open_handles, name="", propagate_device_spec=True)
    return graph


def complete_function_graph(
    graph: Any, traced: Any, inputs: Sequence[str], outputs: Sequence[str], control_outputs: Sequence[str]
) -> None:
    """Gives an imported graph the signature and variables of the traced function it came from.

    Args:
      graph: from `import_function_graph`.
      traced: the traced `ConcreteFunction`.
      inputs: op names, arguments then captures.
      outputs: tensor names.
      control_outputs: op names.
    """
    old = traced.graph
    graph.inputs = [graph.get_tensor_by_name(f"{name}:0") for name in inputs]
    graph.outputs = [graph.get_tensor_by_name(name) for name in outputs]
    graph.control_outputs = [graph.get_operation_by_name(name) for name in control_outputs]
    graph.structured_input_signature = old.structured_input_signature
    graph.structured_outputs = old.structured_outputs
    graph.variables = old.variables
    # Shapes and dtypes behind resource and variant tensors are not part of a GraphDef.
    for source, target in zip((*old.inputs, *old.outputs), (*graph.inputs, *graph.outputs), strict=False):
        _handle_data.copy_handle_data(source, target)


def captured_variables(concrete: Any) -> dict[int, Any]:
    """Id of a captured handle -> the variable it is of.

    `graph.variables` has only those that were watched; ops such as `ResourceApplyAdam` take handles without that.
    """
    found = {id(variable.handle): variable for variable in concrete.graph.variables}
    for capture in external_captures(concrete):
        owner = getattr(capture, "_parent_trackable", None)
        variable = owner() if callable(owner) else None
        if isinstance(variable, tf.Variable) and variable.handle is capture:
            found.setdefault(id(capture), variable)
    return found


def external_captures(concrete: Any) -> list[Any]:
    """What a `ConcreteFunction` feeds to its captures: tensors, or callables asked at each call.

    The public `captured_inputs` has called the callables already.
    """
    return list(concrete._captured_inputs)


def function_of_graph(graph: Any, traced: Any) -> Any:
    """A `ConcreteFunction` that runs a completed graph as it is now; `tf.function` can only trace Python.

    Args:
      graph: completed by `complete_function_graph`.
      traced: the function it came from, whose arguments, results and captures the new one has.
    """
    captures = external_captures(traced)
    _reset_captures(graph, captures)
    function = _ConcreteFunction.from_func_graph(graph, traced.function_type, {})
    function._arg_keywords = traced._arg_keywords
    function._num_positional_args = traced._num_positional_args
    function.set_external_captures(captures)
    return function


def literal_arguments(concrete: Any) -> dict[str, Any]:
    """Parameters for which a function was traced with a plain Python value -> that value.

    A `ConcreteFunction` wants them given again at each call, as keywords or in their place.
    """
    kinds = {name: parameter.type_constraint for name, parameter in concrete.function_type.parameters.items()}
    return {name: kind.value for name, kind in kinds.items() if isinstance(kind, _Literal)}


def _reset_captures(graph: Any, captures: Sequence[Any]) -> None:
    values = [capture() if callable(capture) else capture for capture in captures]
    graph.function_captures.reset_captures(values, graph.inputs[len(graph.inputs) - len(values) :])
    _ = graph.captures  # rebuilds a cached list, which would hold the old captures


# ---- changing a graph in place -----------------------------------------------------------------------------------


def set_op_device(op: Any, device: str) -> None:
    """Puts an op of a graph on a device; publicly a device is fixed when the op is made."""
    op._set_device_from_string(device)


def set_op_input(op: Any, index: int, tensor: Any) -> None:
    """Makes an op read another tensor; publicly inputs are fixed when the op is made."""
    op._update_input(index, tensor)


def set_control_inputs(op: Any, controls: Sequence[Any]) -> None:
    """Makes an op wait for exactly these ops, besides its data; publicly this is fixed when the op is made."""
    op._remove_all_control_inputs()
    op._add_control_inputs(list(controls))


def set_int_attribute(op: Any, name: str, value: int) -> None:
    """Gives an op another value of an attribute; publicly attributes are fixed when the op is made."""
    op._set_attr(name, _AttrValue(i=value))


def copy_constant(op: Any, name: str, device: str) -> Any:
    """A copy of a `Const` op on another device.

    `tf.constant` would build its value anew and drop the op's other attributes; `tf.raw_ops` has no `Const`.
    """
    graph = op.graph
    with graph.as_default(), graph.control_dependencies(None), graph.control_dependencies(op.control_inputs):
        copy = graph._create_op_internal(
            "Const", [], [op.outputs[0].dtype], attrs={k: op.node_def.attr[k] for k in ("dtype", "value")}, name=name
        )
    copy._set_device_from_string(device)
    return copy


# ---- moving variables --------------------------------------------------------------------------------------------


def has_storage(variable: Any) -> bool:
    """Whether a `tf.Variable` has storage of its own in this process, unlike those of graphs, and unlike wrappers."""
    return tf.is_tensor(vars(variable).get("_handle")) and hasattr(variable._handle, "numpy")


def swap_handle(variable: Any, new: Any) -> None:
    """Lets `variable` own the storage of `new`, another variable of the same dtype and shape.

    A variable's device is otherwise fixed for its life, and a new object would lose its identity to optimizers,
    checkpoints and Python code that hold the old one.
    """
    set_handle(variable, new._handle)


def set_handle(variable: Any, handle: Any) -> None:
    """Lets `variable` own the storage behind a handle, which no variable owns any more; see `swap_handle`."""
    handle._parent_trackable = weakref.ref(variable)
    handle._unique_id = variable._handle._unique_id
    variable._handle = handle


def read_by_pipelines() -> set[int]:
    """Ids of the handles that functions of live datasets capture; a dataset goes on with those it was made with."""
    # one that failed while it was traced, and is kept alive by its traceback, has no function
    functions = [getattr(wrapper, "_function", None) for wrapper in live(_StructuredFunctionWrapper)]
    return {id(capture) for function in functions for capture in getattr(function, "_captured_inputs", ())}


def rebind_captures(handles: Mapping[int, Any]) -> int:
    """Gives every live `ConcreteFunction` that captured an old handle the new one; returns how many had to change.

    Functions traced before a variable moved would go on reading and writing storage nobody else sees. TensorFlow keeps
    no list of traced functions. Their graphs name the captures too, and would keep the old storage alive.

    Args:
      handles: id of the old handle -> new handle.
    """
    changed = 0
    for function in live(_ConcreteFunction):
        if any(id(c) in handles for c in function._captured_inputs):
            captures = [handles.get(id(c), c) for c in function._captured_inputs]
            function.set_external_captures(captures)
            if not any(callable(c) for c in captures):
                _reset_captures(function.graph, captures)
            changed += 1
    return changed


def live_functions() -> list[Any]:
    """The live `tf.function`s, of which TensorFlow keeps no list."""
    return live(_PolymorphicFunction)


def is_for_xla(function: Any) -> bool:
    """Whether a `tf.function` has jit_compile=True, which it tells nobody."""
    return bool(function._jit_compile)


def traces_of(function: Any) -> list[Any]:
    """The `ConcreteFunction`s of a `tf.function`. TensorFlow's own list would trace one that has an input signature."""
    loaded = getattr(function, "concrete_functions", None)
    return list(function._function_cache.values() if loaded is None else loaded)


def bound_functions(function: Any) -> dict[int, Any]:
    """Id of an object -> the `tf.function` that one which decorates a method has for it; made when it is asked for."""
    return {id(thing): bound for thing, bound in function._descriptor_cache.items()}


def called_graph(graph: Any, name: str) -> Any:
    """The graph of a function that a graph calls; None if it does not know it."""
    function = graph._get_function(name)
    return None if function is None else function.graph


def is_part_of(traced: Any, whole: Any) -> bool:
    """Whether one `ConcreteFunction` calls another by the name that it has."""
    return bool(whole.graph._is_function(traced.name))


def live(*kinds: type[Any]) -> list[Any]:
    """Live instances of classes and their subclasses, found in one pass over all there is in memory.

    They refer to their class. `gc.get_objects()` would hold a reference to every object there is, also to tuples that
    other threads are making, which then fail.
    """
    if not kinds:
        return []
    if gc.get_freeze_count():
        gc.unfreeze()  # frozen objects are not listed
    every = list(dict.fromkeys(kinds))
    for above in every:
        every += [below for below in type.__subclasses__(above) if below not in every]
    return [thing for thing in gc.get_referrers(*every) if issubclass(type(thing), kinds)]


# ---- workers ----------------------------------------------------------------------------------------------------


def is_in_cluster() -> bool:
    """Whether the eager context knows workers, or has once known some; publicly it is not told."""
    return _context.get_server_def() is not None


def start_own_server(own: str) -> None:
    """Has this process listen at "host:port", for workers to fetch from it what functions on them are given.

    `tf.config.experimental_connect_to_cluster` has workers on other hosts look for it at "localhost", and connects to
    them before its port can be closed to others.
    """
    _context.context().set_server_def(_server_def(own, ()))


def set_cluster(own: str, workers: Sequence[str], keep_alive_s: int) -> None:
    """Gives the eager context the devices of workers, in place of those of others; what is on its own devices stays.

    Args:
      own: see `start_own_server`.
      workers: "host:port" of each, in the order of their task numbers; one that was restarted is met anew.
      keep_alive_s: time after which workers free what they hold for a process that is gone.
    """
    _context.context().update_server_def(_server_def(own, workers), keep_alive_s)


def _server_def(own: str, workers: Sequence[str]) -> Any:
    jobs = {"localhost": [own]} | ({"worker": list(workers)} if workers else {})
    return tf.train.ServerDef(
        cluster=tf.train.ClusterSpec(jobs).as_cluster_def(),
        job_name="localhost",
        task_index=0,
        protocol="grpc",
        default_session_config=eager_config(),
    )


# ---- running -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def call_config(config: Any) -> Iterator[None]:
    """Functions called inside are optimized and placed under `config`, a `ConfigProto`.

    `tf.config.optimizer` changes the whole process, so that other functions would change with a placed one.
    """
    eager = _context.context()
    before = eager.function_call_options
    eager.function_call_options = _context.FunctionCallOptions(executor_type=before.executor_type, config_proto=config)
    try:
        yield
    finally:
        eager.function_call_options = before


def eager_config() -> Any:
    """A copy of the `ConfigProto` under which functions are called now; there is no public reader."""
    config = tf.compat.v1.ConfigProto()
    config.CopyFrom(_context.context().config)
    return config


@contextlib.contextmanager
def collect_function_graphs(into: list[Any]) -> Iterator[None]:
    """Collects `RunMetadata.FunctionGraphs` of functions first called inside: what ran, partitioned by device.

    `tf.summary.trace_on` gives only an event file.
    """
    eager = _context.context()
    eager.enable_run_metadata()
    eager.export_run_metadata()  # drops what earlier calls left
    try:
        yield
        into.extend(eager.export_run_metadata().function_graphs)
    finally:
        eager.disable_run_metadata()
