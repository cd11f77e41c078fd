"""The cause of a failed Spark job, and warnings on stderr."""

from __future__ import annotations

import re
import sys


def cause(error: Exception) -> str:
    """One line of Spark's long message: kohort's innermost error, else Python's last, else Java's, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("kohort.") and ": " in line]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Invalid)(:|$)", line)]
    javas = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return next(iter([*ours[-1:], *raised[-1:], *javas, *lines]), type(error).__name__)


def warn(text: str) -> None:
    """A line on stderr."""
    print(f"kohort: {text}", file=sys.stderr, flush=True)
