"""GraphWriter: a GraphDef in the making, with the shapes of its tensors and where each op stems from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from grappler_bridge.item import TensorProperties
from tfplace.errors import SplitError

_KNOWN_VALUES = 16
"""Elements of integer constants whose values are told with their shapes."""


class GraphWriter:
    """Writes nodes.

    Attributes:
      graph_def: the graph.
      outputs: op name -> properties of its outputs.
      elements: op name -> properties of the elements of the TensorList that it has.
      original: op name -> the op that it stems from.
      slice_of: op name -> the slice that it is of; without those that stand once.
    """

    def __init__(self) -> None:
        self.graph_def = tf.compat.v1.GraphDef()
        self.outputs: dict[str, list[TensorProperties]] = {}
        self.elements: dict[str, TensorProperties] = {}
        self.original: dict[str, str] = {}
        self.slice_of: dict[str, int] = {}

    @property
    def names(self) -> Any:
        """Names that are taken."""
        return self.original.keys()

    def add(
        self,
        name: str,
        original: str,
        outputs: Sequence[TensorProperties],
        *,
        element: TensorProperties | None = None,
        k: int | None = None,
    ) -> Any:
        """A new node, which the caller fills.

        Raises:
          SplitError: the name is taken.
        """
        if name in self.original:
            raise SplitError(f"a step with an op named {name!r}", "no op whose name tfplace needs for a copy")
        self.original[name] = original
        self.outputs[name] = list(outputs)
        if element is not None:
            self.elements[name] = element
        if k is not None:
            self.slice_of[name] = k
        node = self.graph_def.node.add()
        node.name = name
        return node

    def constant(self, name: str, original: str, value: Any, k: int | None = None, *, beside: str = "") -> str:
        """A constant, once.

        Args:
          name: its own.
          original: the op that it stems from.
          value: what it is.
          k: its slice.
          beside: an op inside whose loop it is; a constant that waits for nothing is outside of all loops.
        """
        if name in self.original:
            return name
        array = np.asarray(value)
        proto = tf.make_tensor_proto(array, shape=array.shape)
        dtype = tf.dtypes.as_dtype(proto.dtype)
        small = dtype.is_integer and array.size <= _KNOWN_VALUES
        known = tuple(int(x) for x in array.ravel()) if small else None
        node = self.add(name, original, [TensorProperties(dtype, array.shape, known)], k=k)
        node.op = "Const"
        node.input.extend([f"^{beside}"] if beside else [])
        node.attr["dtype"].type = proto.dtype
        node.attr["value"].tensor.CopyFrom(proto)
        return name

    def op(
        self,
        kind: str,
        name: str,
        original: str,
        inputs: Sequence[str],
        outputs: Sequence[TensorProperties],
        *,
        k: int | None = None,
        **attributes: Any,
    ) -> str:
        """An op whose type attribute T is that of its first output.

        Args:
          kind: its type.
          name: its own.
          original: the op that it stems from.
          inputs: tensors.
          outputs: properties.
          k: its slice.
          **attributes: integers, and dtypes.
        """
        node = self.add(name, original, outputs, k=k)
        node.op = kind
        node.input.extend(inputs)
        node.attr["T"].type = outputs[0].dtype.as_datatype_enum
        for key, value in attributes.items():
            if isinstance(value, int):
                node.attr[key].i = value
            else:
                node.attr[key].type = value.as_datatype_enum
        return name

    def free(self, name: str, taken: Any) -> str:
        """A name like this that neither the graph nor `taken` has."""
        while name in self.original or name in taken:
            name += "_"
        return name
