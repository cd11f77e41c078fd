"""Repeats one input of any kind: for finds, for making them smaller, and for the vectors of past finds.

A vector is a file named after the find. Lines with # explain it; then come the kind with its subject, and the input in
hex or the lines of a broker's story.
"""

from __future__ import annotations

import importlib
import random
from pathlib import Path

from fuzz_batches import BatchFuzz
from fuzz_broker import failure_of
from fuzz_checks import Find
from fuzz_codec import CodecFuzz
from fuzz_framing import FramingFuzz
from fuzz_guest import GuestFuzz, fixed_nonce

VECTORS = Path(__file__).with_name("vectors")


def repeated(kind: str, about: str, data: bytes) -> None:
    """Runs the input as its kind does. Raises Find if it shows something."""
    match kind:
        case "codec":
            module, _, rest = about.partition(".")
            name, _, version = rest.partition(" v")
            cls = getattr(importlib.import_module(f"kohort.wire.schemas.{module}"), name)
            CodecFuzz(random.Random(0)).check(cls, int(version), [data])
        case "framing":
            for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
                FramingFuzz(random.Random(0)).check([(data, pieces)])
        case "guest":
            with fixed_nonce():
                GuestFuzz(random.Random(0)).check([(data, [data])])
        case "batches":
            BatchFuzz(random.Random(0)).check([data])
        case "broker" | "tcp":
            failure = failure_of(data)
            if failure is not None:
                raise Find(kind, about, data, failure)
        case _:
            raise ValueError(f"there is no kind {kind!r}")


def shows(kind: str, about: str, data: bytes) -> str | None:
    """The kind of failure; None if there is none."""
    try:
        repeated(kind, about, data)
    except Find as find:
        return find.what.split(":")[0].split(" took ")[-1].rstrip("0123456789. ms") or "slow"
    return None


def read(path: Path) -> tuple[str, str, bytes]:
    """The kind, the subject and the input of a vector."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    kind, _, about = lines[0].partition(" ")
    if kind in ("broker", "tcp"):
        return kind, about, "\n".join(lines[1:]).encode()
    return kind, about, bytes.fromhex("".join(lines[1:]))


def written(kind: str, about: str, data: bytes, what: str) -> str:
    """The text of a vector."""
    body = data.decode() if kind in ("broker", "tcp") else data.hex()
    return f"# {what}\n{kind} {about}\n{body}\n"
