"""Copies the docstring of each field of a model into its schema. Only commands that write a schema need it: pydantic's
own `use_attribute_docstrings` would slow every start by a tenth of a second."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from typing import Any

from iotax.study.fields import Section
from iotax.study.model import SECTIONS, factor_names
from iotax.study.setup import OWN, Setup
from iotax.study.sim import Sim


def describe(definitions: dict[str, dict[str, Any]], study: dict[str, Any]) -> None:
    """Gives each property its field's docstring. `definitions` are a schema's `$defs`, `study` describes the file."""
    sections = {name: _docstrings(SECTIONS.get(section, Sim)) for name, section in factor_names().items()}
    factors = {name: docstrings[name] for name, docstrings in sections.items()}
    _put(definitions["Factors"], factors)
    _put(definitions[Setup.__name__], {name: factors[name] for name in OWN})
    models = _models(Section)
    for name, schema in (*definitions.items(), ("Study", study)):
        _put(schema, _docstrings(models[name]))


def _models(of: type[Section]) -> dict[str, type[Section]]:
    """All models by name."""
    found: dict[str, type[Section]] = {of.__name__: of}
    for each in of.__subclasses__():
        found |= _models(each)
    return found


def _docstrings(model: type[Section]) -> dict[str, str]:
    """The docstrings of the fields in its class statement and in those that it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, Section):
            found |= _stated(each)
    return found


@functools.cache
def _stated(model: type[Section]) -> dict[str, str]:
    """The string that follows a field. A model made by a function has no class statement and so none."""
    statement = _statements(model.__module__).get(model.__name__)
    if statement is None:
        return {}
    found = {}
    for field, after in zip(statement.body, statement.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            said = after.value
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                found[field.target.id] = inspect.cleandoc(said.value)
    return found


@functools.cache
def _statements(module: str) -> dict[str, ast.ClassDef]:
    """A module's classes by name. (`inspect.getsource` of a class would parse the module for each.)"""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    return {each.name: each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}


def _put(schema: dict[str, Any], docstrings: dict[str, str]) -> None:
    for name, property_ in schema.get("properties", {}).items():
        if name in docstrings:
            property_["description"] = docstrings[name]
