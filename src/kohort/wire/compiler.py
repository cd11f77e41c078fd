"""A function under construction: what `encoders.py` and `decoders.py` write their generated source with.

The generated code is one flat function a (message class, version): a loop for an array, the fields of a struct
inlined. What makes it quick is that fixed-size fields that stand side by side, across struct borders, become one
`Struct` call; the first byte of a compact length that follows them rides along, since it is the whole length in
nearly every case. `Source.run` holds the fixed fields in hand until something of variable size ends them.

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
    """The lines of a function, the names that it refers to, and the run of fixed fields in hand."""

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
        """A name that the function does not use yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, prefix: str, value: Any) -> str:
        """A name for a value that is known now."""
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def text(self, signature: str) -> str:
        return f"def {signature}:\n" + "\n".join(self.lines) + "\n"

    def compile(self, signature: str, label: str) -> Any:
        exec(compile(self.text(signature), f"<{signature} of {label}>", "exec"), self.names)
        return self.names[signature.partition("(")[0]]
