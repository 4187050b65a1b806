"""Named tuples of arrays, handed to compiled kernels by their address.

Numba takes a tuple of arrays apart into some seven numbers an array, in every function that it is handed to: for two
dozen arrays more than a hundred arguments, whose unpacking costs more compile time than what a helper does with them.
Here a kernel gets one pointer, to a block with the address and the shape of every array, and reads what it needs there.

A block never changes, which the compiler is told, so that it reads nothing twice. Arrays are not reference counted: who
calls a kernel keeps the `ByAddress` for as long as it runs.
"""

# Numba's classes and decorators have no types.
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Collection
from typing import Any, Generic, TypeVar

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

Fields = TypeVar("Fields", bound=tuple[Any, ...])

_LAYOUT = 1
"""Part of the name of every type: what numba has compiled and kept for another layout is not taken for this one."""

_WORD = 8
_NUMBERS = {int: types.int64, bool: types.boolean, float: types.float64}


class Block(types.Type):
    """The numba type of a pointer to a block.

    Attributes:
      fields: name, type and first word of each field. An array has a word for its address and one for each axis, a
        number has one, a block within has one for its address.
    """

    def __init__(self, name: str, fields: tuple[tuple[str, types.Type], ...]) -> None:
        self.fields: dict[str, tuple[types.Type, int]] = {}
        at = 0
        for field, kind in fields:
            self.fields[field] = kind, at
            at += 1 + kind.ndim if isinstance(kind, types.Array) else 1
        inside = ", ".join(f"{field}: {kind.name}" for field, kind in fields)
        # short, as the names of compiled functions consist of those of their arguments' types
        super().__init__(f"{name}_{hashlib.blake2b(f'{_LAYOUT} {inside}'.encode(), digest_size=8).hexdigest()}")


class ByAddress(Generic[Fields]):
    """A named tuple as a kernel takes it; its fields are those of the tuple.

    Args:
      fields: contiguous arrays, numbers, or tuples of them. Kernels see what is written into the arrays.
      fixed: names of integers that kernels are compiled for: what they do for other ones is not in the machine code.

    Attributes:
      fields: the same.
      address: of the block.
    """

    __slots__ = ("_block", "_inner", "_numba_type_", "address", "fields")

    def __init__(self, fields: Fields, fixed: Collection[str] = ()) -> None:
        self.fields = fields
        names: tuple[str, ...] = type(fields)._fields  # type: ignore[attr-defined]
        self._inner = [ByAddress(value) if isinstance(value, tuple) else value for value in fields]
        kinds = [
            types.literal(value) if name in fixed else _kind(value)
            for name, value in zip(names, self._inner, strict=True)
        ]
        self._numba_type_ = _block(type(fields).__name__, names, tuple(kinds))
        words: list[int] = []
        for value in self._inner:
            words += _words(value)
        self._block = np.array(words, np.int64)
        self.address = _address(self._block)


def _words(value: Any) -> tuple[int, ...]:
    """What a field has in the block."""
    if isinstance(value, np.ndarray):
        return _address(value), *value.shape
    if isinstance(value, ByAddress):
        return (value.address,)
    return struct.unpack("q", struct.pack("d", value)) if isinstance(value, float) else (int(value),)


def _address(array: NDArray[Any]) -> int:
    return array.ctypes.data


def _kind(value: Any) -> Any:
    """What tells the type of a field."""
    if isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            raise ValueError(f"an array of shape {value.shape} and strides {value.strides}; expected a contiguous one")
        return value.dtype, value.ndim
    return value._numba_type_ if isinstance(value, ByAddress) else _NUMBERS[type(value)]


@functools.cache
def _block(name: str, fields: tuple[str, ...], kinds: tuple[Any, ...]) -> Block:
    found = [types.Array(from_dtype(kind[0]), kind[1], "C") if isinstance(kind, tuple) else kind for kind in kinds]
    return Block(name, tuple(zip(fields, found, strict=True)))


register_model(Block)(models.OpaqueModel)


@infer_getattr
class _Attributes(AttributeTemplate):
    key = Block

    def generic_resolve(self, block: Block, name: str) -> types.Type | None:
        """The type of a field."""
        return block.fields[name][0] if name in block.fields else None


@lower_getattr_generic(Block)
def _read(context: Any, builder: Any, block: Block, pointer: Any, name: str) -> Any:
    """What a kernel does to read a field."""
    kind, at = block.fields[name]
    word = ir.IntType(64)
    if isinstance(kind, types.Literal):
        return ir.Constant(context.get_value_type(kind), kind.literal_value)

    def load(index: int, as_type: ir.Type) -> Any:
        base = builder.bitcast(pointer, as_type.as_pointer())
        found = builder.load(builder.gep(base, [ir.Constant(word, index)]), align=_WORD)
        found.set_metadata("invariant.load", builder.module.add_metadata([]))
        return found

    if isinstance(kind, Block):
        return load(at, context.get_value_type(kind))
    if kind is types.boolean:
        return builder.trunc(load(at, word), ir.IntType(1))
    if not isinstance(kind, types.Array):
        return load(at, context.get_value_type(kind))
    structure = context.get_value_type(kind)
    itemsize = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    shape = [load(at + 1 + axis, word) for axis in range(kind.ndim)]
    size: Any = ir.Constant(word, itemsize)
    strides: list[Any] = []
    for extent in reversed(shape):
        strides.insert(0, size)
        size = builder.mul(size, extent)
    count = shape[0]
    for extent in shape[1:]:
        count = builder.mul(count, extent)
    parts = [None, None, count, ir.Constant(word, itemsize), load(at, structure.elements[4])]
    array: Any = ir.Constant(structure, None)  # without an owner
    for index, part in enumerate(parts):
        if part is not None:
            array = builder.insert_value(array, part, index)
    for axis in range(kind.ndim):
        array = builder.insert_value(array, shape[axis], (5, axis))
        array = builder.insert_value(array, strides[axis], (6, axis))
    return array


@unbox(Block)
def _unbox(block: Block, value: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(value, "address")
    pointer = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    return NativeValue(pointer)


@typeof_impl.register(ByAddress)
def _typeof(value: ByAddress[Any], c: Any) -> Block:
    return value._numba_type_
