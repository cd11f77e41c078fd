"""The lines of one scrape, by family, up to the limit of series; and the two formats of the text.

Formats: Prometheus text 0.0.4, and OpenMetrics 1.0 for a scraper that asks for it. They differ in the name of a
counter's family, and in the last line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kohort.broker.metrics.families import COUNTER, FAMILIES, Family

LONGEST_LABEL = 250
"""Characters of a label's value; a longer one is cut."""
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
STEP_LINES = 5_000
"""Lines that are joined in one step."""


def escaped(value: str) -> str:
    """A label's value. Names of groups are chosen by clients: lone surrogates become question marks."""
    cut = value if len(value) <= LONGEST_LABEL else value[: LONGEST_LABEL - 1] + "…"
    return cut.encode("utf-8", "replace").decode().translate(_ESCAPES)


def labels_text(names: Sequence[str], values: Sequence[str]) -> str:
    """`{topic="orders",partition="0"}`; empty without labels."""
    if not values:
        return ""
    pairs = ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}"


def number(value: float) -> str:
    """An integer stays one: offsets beyond 2^53 are exact in the text."""
    return str(value) if isinstance(value, int) else f"{value:.9g}" if abs(value) < 1e9 else repr(value)


class Samples:
    def __init__(self, limit: int) -> None:
        self.left = limit
        """Series that still fit."""
        self.left_out = 0
        self._lines: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def add(self, family: Family, value: float, *labels: str) -> None:
        """One series. `labels`: the values of the family's labels, or none for a total of all."""
        if self.left <= 0:
            self.left_out += 1
            return
        self.add_lines(family, [f"{family.name}{labels_text(family.labels, labels)} {number(value)}"])

    def add_lines(self, family: Family, lines: list[str]) -> None:
        """Lines of a family that belong together; all or none of them fit."""
        if len(lines) > self.left:
            self.left_out += len(lines)
            return
        self.left -= len(lines)
        self._lines.setdefault(family.name, []).extend(lines)

    def leave_out(self, count: int) -> None:
        self.left_out += count

    def text(self, *, open_metrics: bool) -> Iterator[bytes]:
        """The parts of the text."""
        for family in FAMILIES:
            lines = self._lines.get(family.name)
            if not lines:
                continue
            name = family.name
            if open_metrics and family.kind == COUNTER:
                name = name.removesuffix("_total")
            yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n".encode()
            for start in range(0, len(lines), STEP_LINES):
                yield ("\n".join(lines[start : start + STEP_LINES]) + "\n").encode()
        if open_metrics:
            yield b"# EOF\n"
