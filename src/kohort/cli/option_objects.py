"""Options of a command as objects: dataclasses whose fields are typer options, shared between commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def with_option_objects(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: each parameter that is a dataclass becomes the options that its fields describe."""
    hints = get_type_hints(command, include_extras=True)
    parameters: dict[str, inspect.Parameter] = {}
    objects: dict[str, tuple[type, list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            parameters[name] = parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            continue
        assert isinstance(kind, type)
        described = get_type_hints(kind, include_extras=True)
        objects[name] = kind, [field.name for field in fields(kind)]
        for field in fields(kind):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            parameters[field.name] = inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=described[field.name]
            )

    @wraps(command)
    def called(**given: Any) -> None:
        made = {name: kind(**{field: given.pop(field) for field in names}) for name, (kind, names) in objects.items()}
        command(**given, **made)

    called.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    called.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return called
