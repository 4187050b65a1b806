"""Ops that TensorFlow learns of while it runs, as by `tf.load_op_library`, without a compiler: by its C interface."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import tensorflow as tf

_CREATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_COMPUTE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_kept: list[Any] = []  # TensorFlow calls these as long as the process lives


def register_op(op_type: str) -> None:
    """Registers an op that returns its one float input; it has no kernel yet."""
    c = _library()
    builder = ctypes.c_void_p(c.TF_NewOpDefinitionBuilder(op_type.encode()))
    c.TF_OpDefinitionBuilderAddInput(builder, b"x: float")
    c.TF_OpDefinitionBuilderAddOutput(builder, b"y: float")
    any_shape = ctypes.cast(c.TF_ShapeInferenceContextSetUnknownShape, ctypes.c_void_p)
    c.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, any_shape)
    status = ctypes.c_void_p(c.TF_NewStatus())
    c.TF_RegisterOpDefinition(builder, status)
    assert c.TF_GetCode(status) == 0


def register_kernel(op_type: str) -> None:
    """Registers a kernel for CPUs for an op of `register_op`."""
    c = _library()
    status = ctypes.c_void_p(c.TF_NewStatus())

    def compute(_: int, context: int) -> None:
        tensor = ctypes.c_void_p()
        c.TF_GetInput(ctypes.c_void_p(context), 0, ctypes.byref(tensor), status)
        c.TF_SetOutput(ctypes.c_void_p(context), 0, tensor, status)
        c.TF_DeleteTensor(tensor)

    functions = _CREATE(lambda _: None), _COMPUTE(compute), _DELETE(lambda _: None)
    _kept.extend(functions)
    builder = ctypes.c_void_p(c.TF_NewKernelBuilder(op_type.encode(), b"CPU", *functions))
    c.TF_RegisterKernelBuilder(f"{op_type}Kernel".encode(), builder, status)
    assert c.TF_GetCode(status) == 0


def call(op_type: str, x: Any) -> Any:
    """Calls a registered op in a graph that is being built."""
    node = tf.compat.v1.NodeDef(name=op_type, op=op_type, input=["x"])
    (y,) = tf.graph_util.import_graph_def(
        tf.compat.v1.GraphDef(node=[node]), input_map={"x": x}, return_elements=[f"{op_type}:0"], name=""
    )
    return y


def _library() -> Any:
    (file,) = Path(tf.__file__).parent.glob("libtensorflow_cc.*")
    c = ctypes.CDLL(str(file))
    for name in ("TF_NewOpDefinitionBuilder", "TF_NewStatus", "TF_NewKernelBuilder"):
        getattr(c, name).restype = ctypes.c_void_p
    return c
