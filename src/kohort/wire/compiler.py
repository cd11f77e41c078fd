"""A function under construction, which `encoders.py` and `decoders.py` fill with source lines.

The generated code is one flat function for each (message class, version): a loop for an array, a struct's fields
inlined. It is fast because adjacent fixed-size fields, across struct borders, become one `Struct` call, together with
the first byte of a compact length that follows, which is nearly always the whole length. `Source.run` collects fixed
fields until a field of variable size ends the run.

    def decode(buf, pos, v):                    # HeartbeatRequest v4
        size = len(buf)
        n1 = buf[pos]; pos += 1
        if not 0 < n1 < 128: n1, pos = long_or_null(buf, pos, 'group_id')
        z3 = pos + n1 - 1; a2 = buf[pos:z3].decode(); pos = z3
        a4, n5 = S6(buf, pos); pos += 5         # generation_id, and the length of member_id
        ...

To see the source of any pair: `print(decoder_source(cls, version))`, `print(encoder_source(cls, version))`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class Source:
    """The lines of a function, the names that it refers to, and the current run of fixed fields."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = dict(names)
        self.run: list[tuple[str, str]] = []
        """Struct format and variable or expression of each fixed field not yet read or written."""
        self._depth = 1
        self._counter = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """A new variable name."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, prefix: str, value: Any) -> str:
        """A name for a constant."""
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def text(self, signature: str) -> str:
        return f"def {signature}:\n" + "\n".join(self.lines) + "\n"

    def compile(self, signature: str, label: str) -> Any:
        exec(compile(self.text(signature), f"<{signature} of {label}>", "exec"), self.names)
        return self.names[signature.partition("(")[0]]
