"""The result of a command, and the type of the fixture that runs one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass
class Ran:
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Kohort(Protocol):
    def __call__(self, *arguments: str, stdin: str | bytes | None = None, code: int | None = 0) -> Ran:
        """Run `kohort` with these arguments. Fails the test unless it ends with `code`; None takes any."""


class Terminal:
    """For `sys` in a module that asks on a terminal."""

    class stdin:
        @staticmethod
        def isatty() -> bool:
            return True

    class stdout:
        @staticmethod
        def flush() -> None:
            pass
