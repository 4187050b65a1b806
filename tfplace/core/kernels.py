"""How kernels are compiled by numba: helpers become a part of the kernel that calls them, and nothing of their own.

Numba makes every function a module of its own that can be called from Python, optimizes it, and optimizes it again,
with all that it calls, in every function that calls it. Helpers call helpers, so most of the compile time goes into
code that is thrown away. Here a helper stops at unoptimized code. What is optimized, once, and kept by numba's cache,
is the kernel with all the helpers in it.

A function that numba compiles in another way must not call a helper: it would not get what the helper calls.
"""

# Numba's classes have no types.
# mypy: disable-error-code="misc"

from __future__ import annotations

import ctypes
from typing import Any

import numba as nb
from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Nowhere:
    """Stands for the code generator where nothing was generated."""

    def set_env(self, name: str, environment: Any) -> None:
        """Of objects of Python that a function mentions, which helpers do not."""


class _Part(JITCodeLibrary):
    """The code of a helper, which goes into that of a kernel."""

    codegen = _Nowhere()

    def finalize(self) -> None:
        """Leaves it as it is."""
        self._raise_if_finalized()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """What Python is to call, as there is no machine code: it sets a TypeError and returns null."""
        return ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value or 0


class _Whole(JITCodeLibrary):
    """The code of a kernel, with all parts that it and they call."""

    _linking_libraries: list[JITCodeLibrary]

    def finalize(self) -> None:
        """Optimizes all of it together."""
        last_first: dict[JITCodeLibrary, None] = {}
        for library in self._linking_libraries:
            _visit(library, last_first)
        self._linking_libraries = [*reversed(last_first)]
        super().finalize()


def _visit(library: JITCodeLibrary, last_first: dict[JITCodeLibrary, None]) -> None:
    """Adds what a part calls, then itself: LLVM takes out of a module only what those before it have asked for."""
    if library not in last_first:
        for called in library._linking_libraries if isinstance(library, _Part) else ():
            _visit(called, last_first)
        last_first[library] = None


class _HelperCompiler(Compiler):
    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(typing, target, library or _Part(target.codegen(), "helper"), *rest)


class _KernelCompiler(Compiler):
    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        if library is None:
            library = _Whole(target.codegen(), "kernel")
            library.enable_object_caching()
        super().__init__(typing, target, library, *rest)


def _kernel(*, allocates: bool, kept: bool = True) -> Any:
    return nb.njit(
        cache=kept, nogil=True, pipeline_class=_KernelCompiler, no_cfunc_wrapper=True, **_common(allocates=allocates)
    )


def _helper(*, allocates: bool = False, inlined: bool = False) -> Any:
    compiled = nb.njit(
        pipeline_class=_HelperCompiler,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        forceinline=inlined,
        **_common(allocates=allocates),
    )

    def decorate(function: Any) -> Any:
        dispatcher = compiled(function)
        template = dispatcher.get_call_template
        dispatcher.get_call_template = lambda args, kws: template(tuple(map(_wide, args)), kws)
        return dispatcher

    return decorate


def _wide(kind: types.Type) -> types.Type:
    """The type for which a helper is compiled: once for all integers, not for each size and every constant."""
    if isinstance(kind, types.Integer | types.IntegerLiteral):
        return types.int64
    return types.boolean if isinstance(kind, types.BooleanLiteral) else kind


def _common(*, allocates: bool) -> dict[str, Any]:
    """Without numba's runtime arrays are not reference counted, which would take much time."""
    return {"error_model": "numpy", "_nrt": allocates}


kernel = _kernel(allocates=False)
"""What Python calls. Numba's cache does not see changes to functions of other files, so its helpers are in its own."""

allocating_kernel = _kernel(allocates=True)
"""A kernel that makes arrays or lists, or takes a random generator."""

passing_kernel = _kernel(allocates=True, kept=False)
"""An allocating kernel that is not kept, so that it may have helpers of other files: for tests of these."""

helper = _helper()
"""What kernels and other helpers call; from Python it is a TypeError."""

allocating_helper = _helper(allocates=True)
"""A helper that makes arrays or lists, or takes a random generator."""

inlined = _helper(inlined=True)
"""A helper that LLVM has to inline wherever it is called, where the kernel is slower if it chooses."""
