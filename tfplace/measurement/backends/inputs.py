"""What a measured step is given: the user's batch, or values made up from dtypes and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.graph import OpGraph
from tfplace.errors import ApplyError
from tfplace.extraction.batch import made_up
from tfplace.extraction.metagraph import SIGNATURE

_REQUIRED = "Placeholder"


def step_inputs(graph: OpGraph, meta: Any, batch: Any = None, seed: int = 0) -> dict[str, Any]:
    """A value for every argument of the step.

    Values are made up where the batch has only a `tf.TensorSpec`, or is not given: normal floats, integers 0 and 1
    (valid as a class and as a word of any vocabulary), empty texts. Step times of most models do not depend on them;
    those of sparse lookups and of loops with a computed end do, so give a real batch for such models. An argument with
    a default of its own (`PlaceholderWithDefault`) keeps it unless the batch has a value for it.

    Args:
      graph: an extracted graph.
      meta: its `metagraph()`.
      batch: what the source's step takes, in the same structure as for `extract`, or argument op -> value.
      seed: of what is made up.

    Returns:
      Argument op -> array; without those that keep their default.

    Raises:
      ApplyError: the batch does not fit, an argument's shape is open, or the step reads a resource that is no variable
        (an iterator, a table), which cannot be given to a measured step.
    """
    nodes = {node.name: node for node in meta.graph_def.node}
    names = [info.name.partition(":")[0] for _, info in sorted(meta.signature_def[SIGNATURE].inputs.items(), key=_turn)]
    _refuse_resources(graph, nodes)
    given = _by_name(names, batch)
    rng = np.random.default_rng(seed)
    wanted = [n for n in names if nodes[n].op == _REQUIRED or _is_value(given.get(n))]
    return {name: _value(nodes[name], given.get(name), rng) for name in wanted}


def _turn(item: tuple[str, Any]) -> int:
    return int(item[0].rpartition("_")[2])


def _refuse_resources(graph: OpGraph, nodes: Mapping[str, Any]) -> None:
    for name in graph.op_names:
        node = nodes.get(name)
        if node is not None and node.op == _REQUIRED and node.attr["dtype"].type == tf.resource.as_datatype_enum:
            raise ApplyError(
                f"a step that reads {name!r}, a resource that is not a variable",
                "a step of variables and plain arguments",
                "Measure a step that takes its batch as an argument, not from an iterator or a table.",
            )


def _by_name(names: list[str], batch: Any) -> dict[str, Any]:
    if batch is None:
        return {}
    if isinstance(batch, Mapping) and set(batch) <= set(names):
        return dict(batch)
    leaves = [
        leaf
        for leaf in tf.nest.flatten(batch, expand_composites=True)
        if not isinstance(leaf, bool | int | float | str | None)
    ]
    if len(leaves) != len(names):
        raise ApplyError(f"a batch of {len(leaves)} arrays", f"one for each argument: {', '.join(names) or 'none'}")
    return dict(zip(names, leaves, strict=True))


def _is_value(given: Any) -> bool:
    return given is not None and not isinstance(given, tf.TypeSpec)


def _value(node: Any, given: Any, rng: np.random.Generator) -> Any:
    dtype = tf.dtypes.as_dtype(node.attr["dtype"].type)
    shape = tf.TensorShape(node.attr["shape"].shape)
    if _is_value(given):
        array = np.asarray(given, dtype.as_numpy_dtype)
        if not shape.is_compatible_with(array.shape):
            raise ApplyError(f"an array of shape {array.shape} for {node.name!r}", f"shape {shape}")
        return array
    if isinstance(given, tf.TypeSpec):
        shape = shape.merge_with(given.shape)
    if not shape.is_fully_defined():
        raise ApplyError(f"argument {node.name!r} of shape {shape}", "a known shape", "Extract with a concrete batch.")
    return made_up(dtype, shape.as_list(), rng)
