"""How kernels are compiled by numba: helpers become a part of the kernel that calls them, and nothing of their own.

Numba makes every function a module of its own that can be called from Python, optimizes it, and optimizes it again,
with all that it calls, in every function that calls it. Helpers call helpers, so most of the compile time goes into
code that is thrown away. Here a helper stops at unoptimized code. What is optimized, once, and kept by numba's cache,
is the kernel with all the helpers in it.

Passes over a function that change nothing in kernels are left out, as are garbage collections while one is compiled. A
branch that is never taken as a field of an argument is fixed (`tfplace.core.by_address`) is cut before types are
inferred, so that nothing it calls is compiled. What kernels and helpers must not have therefore: closures,
comprehensions, `with`, `raise` of anything but constants, and array expressions.

A function that numba compiles in another way must not call a helper: it would not get what the helper calls.
"""

# Numba's classes have no types.
# mypy: disable-error-code="misc"

from __future__ import annotations

import ctypes
import gc
from typing import Any, ClassVar

import numba as nb
from numba import types
from numba.core import ir, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.ir_utils import get_definition, guard

from tfplace.core.by_address import Block


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


class _Shared(Flags):
    """Flags that are equal are one object: they are a part of the key under which numba looks up every call's types."""

    _ALL: ClassVar[dict[Flags, _Shared]] = {}

    def __init__(self, flags: Flags) -> None:
        super().__init__(flags)
        self._hash: int = super().__hash__()

    @classmethod
    def of(cls, flags: Flags) -> _Shared:
        """The one that is equal."""
        return cls._ALL.setdefault(flags, cls(flags))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    def copy(self) -> _Shared:
        """Itself, as nothing changes it."""
        return self


@register_pass(mutates_CFG=False, analysis_only=False)
class _FixedFields(FunctionPass):
    """Puts the values of fixed fields in their place, so that numba cuts the branches that they decide."""

    _name = "fixed_fields"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Whether there were any."""
        changed = False
        for block in state.func_ir.blocks.values():
            for assign in block.find_insts(ir.Assign):
                read = assign.value
                if isinstance(read, ir.Expr) and read.op == "getattr":
                    of = guard(get_definition, state.func_ir, read.value)
                    kind = state.args[of.index] if isinstance(of, ir.Arg) else None
                    field = kind.fields.get(read.attr, (None,))[0] if isinstance(kind, Block) else None
                    if isinstance(field, types.Literal):
                        assign.value = ir.Const(field.literal_value, read.loc)
                        state.func_ir._definitions[assign.target.name] = [assign.value]
                        changed = True
        return changed


_LEFT_OUT = {
    untyped_passes.WithLifting, untyped_passes.InlineClosureLikes, untyped_passes.RewriteSemanticConstants,
    untyped_passes.RewriteDynamicRaises, untyped_passes.MakeFunctionToJitFunction, untyped_passes.InlineInlinables,
    untyped_passes.FindLiterallyCalls, untyped_passes.LiteralUnroll, untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.InlineOverloads, typed_passes.NopythonRewrites, typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.DumpParforDiagnostics,
}  # fmt: skip
_PRUNE = untyped_passes.DeadBranchPrune


class _Quick(Compiler):
    """Does what kernels and helpers need and no more."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        args, returns, flags, names = rest
        super().__init__(typing, target, library, args, returns, _Shared.of(flags), names)

    def define_pipelines(self) -> list[PassManager]:
        """The passes."""
        passes = PassManager("kernel")
        for step, why in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if step is untyped_passes.IRProcessing:
                passes.passes += [(step, why), (_FixedFields, "fixed fields"), (_PRUNE, "dead branch pruning")]
            elif step is not _PRUNE and step not in _LEFT_OUT:
                passes.passes.append((step, why))
        passes.finalize()
        return [passes]

    def _compile_core(self) -> Any:
        collects = gc.isenabled()
        gc.disable()
        try:
            return super()._compile_core()
        finally:
            if collects:
                gc.enable()


class _HelperCompiler(_Quick):
    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(typing, target, library or _Part(target.codegen(), "helper"), *rest)


class _KernelCompiler(_Quick):
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
