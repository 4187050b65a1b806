"""Which device types can run an op, and whether it leaves its results in host memory there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfplace.extraction.tf_internals import op_def, registered_kernels

DEVICE_TYPES = ("CPU", "GPU")

# A kernel registered for "DEFAULT" serves every device type that has none of its own.
_DEFAULT = "DEFAULT"

_known: dict[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], KernelSupport] = {}
"""What was found, by op type and type attributes. Where there was no kernel, a library loaded later may bring one."""


@dataclass(frozen=True)
class KernelSupport:
    """Kernel support of one op.

    Attributes:
      types: the device types with a kernel.
      host_memory: whether the GPU kernel leaves every output in host memory.
    """

    types: frozenset[str]
    host_memory: bool


def kernel_support(node: Any) -> KernelSupport:
    """Kernel support of one `NodeDef`, decided by its op type and type attributes.

    An op type without any kernel (a function call, or an op only XLA runs) is taken to run everywhere.
    """
    types = tuple(sorted((k, _enum(v)) for k, v in node.attr.items() if v.WhichOneof("value") in ("type", "list")))
    return _support(node.op, types)


def _enum(value: Any) -> tuple[int, ...]:
    return tuple(value.list.type) if value.WhichOneof("value") == "list" else (value.type,)


def _support(op_type: str, types: tuple[tuple[str, tuple[int, ...]], ...]) -> KernelSupport:
    if (known := _known.get((op_type, types))) is not None:
        return known
    kernels = registered_kernels(op_type)
    if not kernels:
        return KernelSupport(frozenset(DEVICE_TYPES), host_memory=False)
    attrs = dict(types)
    found = {}
    for kernel in kernels:
        if kernel.device_type not in found and _matches(kernel, attrs):
            found[kernel.device_type] = kernel
    fallback = found.get(_DEFAULT)
    usable = {t: found.get(t, fallback) for t in DEVICE_TYPES}
    usable = {t: kernel for t, kernel in usable.items() if kernel is not None}
    gpu = usable.get("GPU")
    outputs = {arg.name for arg in op_def(op_type).output_arg}
    support = KernelSupport(
        frozenset(usable), gpu is not None and bool(outputs) and outputs <= set(gpu.host_memory_arg)
    )
    if usable:
        _known[op_type, types] = support
    return support


def _matches(kernel: Any, attrs: dict[str, tuple[int, ...]]) -> bool:
    return all(set(attrs[c.name]) <= set(c.allowed_values.list.type) for c in kernel.constraint if c.name in attrs)
