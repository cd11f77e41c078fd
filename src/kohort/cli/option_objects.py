"""The typer app of every command. A command may take dataclasses whose fields are options, as commands share them.

Options that take one of a few words have them from `choice`. A command that cannot do what it was asked for calls
`fail`; `kohort.cli.commands` prints the message. So the planning of a change serves the console too, which shows the
message in a page.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, NoReturn, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

F = TypeVar("F", bound=Callable[..., None])

FAILED = 1
EXIT_CODES_HERE = "Exit codes: 0 done, 1 failed, 2 wrong usage."
"""Of commands that ask no cluster."""

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
UNITS_BYTES = {"k": 1024, "m": 1024**2, "g": 1024**3}


class Failed(typer.Exit):
    """`message` is one line: what failed, where, and what to do about it."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(code)
        self.message = message


def fail(message: str, code: int = FAILED) -> NoReturn:
    """End the command with a line on stderr."""
    raise Failed(message, code)


def complain(message: str) -> None:
    """A line on stderr."""
    typer.echo(f"kohort: {message}", err=True)


class Commands(TyperGroup):
    """Commands of which a name may be unfinished: the error lists those that begin with it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        begun = [name for name in self.commands if name != args[0] and name.startswith(args[0])]
        if begun and args[0] not in self.commands and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {', '.join(map(repr, begun))}?")
        return super().resolve_command(ctx, args)


class App(typer.Typer):
    """Each parameter of a command that is a dataclass becomes the options that its fields describe.

    The help of each command ends with its exit codes: its own `epilog`, else that of the app.
    """

    def __init__(self, *, epilog: str = EXIT_CODES_HERE, cls: type[TyperGroup] = Commands, **settings: Any) -> None:
        super().__init__(cls=cls, add_completion=False, rich_markup_mode=None, epilog=epilog, **settings)
        self._epilog = epilog

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        def add(command: F) -> F:
            super(App, self).command(name, **{"epilog": self._epilog, **settings})(_with_option_objects(command))
            return command

        return add


def pairs(flag: str, given: Sequence[str] | None) -> dict[str, str]:
    """NAME=VALUE of a flag that may be given more than once. Raises BadParameter."""
    found = {}
    for pair in given or ():
        left, equals, right = pair.partition("=")
        if not equals or not left.strip():
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=[flag])
        found[left] = right
    return found


def milliseconds(flag: str, text: str) -> int:
    """The duration of a flag: `30s`, `5m`, `1h30m`, `2d`. Raises BadParameter."""
    parts = re.findall(r"(\d+)(ms|s|m|h|d)", text)
    value = sum(int(count) * UNITS_MS[unit] for count, unit in parts)
    if "".join(map("".join, parts)) != text or not 0 < value < 10**12:
        raise typer.BadParameter(f"{text!r} is not a duration; write 30s, 5m, 1h30m or 2d", param_hint=[flag])
    return value


def byte_count(flag: str, text: str) -> int:
    """The size of a flag: `500m`, `1g`. Raises BadParameter."""
    match = re.fullmatch(r"(\d{1,9})([kmg])b?", text.strip().lower())
    if match is None or int(match[1]) == 0:
        raise typer.BadParameter(f"{text!r} is not a size; write 500m or 1g", param_hint=[flag])
    return int(match[1]) * UNITS_BYTES[match[2]]


def near_word(given: str, words: Iterable[str]) -> str | None:
    """The word that was probably meant."""
    lowered = {word.lower(): word for word in words}
    near = difflib.get_close_matches(given.lower(), lowered, n=1)
    return lowered[near[0]] if near else None


def and_so(why: str, outcome: str) -> str:
    """Why a command fails, and with which outcome. `why` may end with a question."""
    return f"{why}{'' if why.endswith('?') else ';'} {outcome}"


def choice(words: Sequence[str]) -> dict[str, Any]:
    """Arguments of `typer.Option` for an option that takes one of `words`, in any case; completes them too."""

    def parse(given: str) -> str:
        for word in words:
            if word.lower() == given.lower():
                return word
        near = near_word(given, words)
        hint = f"; did you mean {near}?" if near else ""
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(words)}{hint}")

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.lower().startswith(incomplete.lower())]

    return {"parser": parse, "autocompletion": complete}


def _with_option_objects(command: Callable[..., None]) -> Callable[..., None]:
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
