"""The cause of a failed Spark job."""

from __future__ import annotations

import re


def cause(error: Exception) -> str:
    """One line of Spark's long message: that of kohort's own exception, else that of another one, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("kohort.") and ": " in line]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Invalid)\b", line)]
    return next(iter([*ours[-1:], *raised[-1:], *lines[:1]]), type(error).__name__)
