"""What the site reads of Python sources beside their text: the options that `tfplace.option_fields.described` adds.

A griffe extension, named by mkdocs.yml.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from griffe import Class, Docstring, Extension, Function, Parameter, ParameterKind, Parameters

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: ParameterKind.keyword_only,
    inspect.Parameter.VAR_POSITIONAL: ParameterKind.var_positional,
    inspect.Parameter.VAR_KEYWORD: ParameterKind.var_keyword,
}


class DescribedOptions(Extension):
    """Gives functions and classes with options the signature and the docstring that they have once they are loaded."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Of a function."""
        if _has_options(func):
            self._complete(func, func)

    def on_class(self, *, cls: Class, **_: Any) -> None:
        """Of a class, whose constructor takes the options."""
        if _has_options(cls):
            self._complete(cls, cls.members["__init__"])

    def _complete(self, documented: Function | Class, called: Any) -> None:
        loaded = getattr(importlib.import_module(documented.module.path), documented.name)
        documented.docstring = Docstring(inspect.getdoc(loaded) or "", parent=documented, parser="google")
        called.parameters = Parameters(*map(_parameter, inspect.signature(loaded).parameters.values()))


def _has_options(one: Function | Class) -> bool:
    return any(str(decorator.value).startswith("described(") for decorator in one.decorators)


def _parameter(one: inspect.Parameter) -> Parameter:
    annotation = None if one.annotation is one.empty else str(one.annotation)
    default = None if one.default is one.empty else repr(one.default)
    return Parameter(one.name, annotation=annotation, kind=_KINDS[one.kind], default=default)
