"""Which of kohort's modules run compiled: the finder that loads them, and what it takes for them to be loaded.

`tools/compiled.py` compiles the hot modules with mypyc into `kohort/_compiled`, with a manifest: a digest of what
each was made from. A compiled module is loaded in place of its source only if the digest is that of the source which
is there now, so a stale build is never used; the typed codec, which has no source in the package, is loaded if the
tables, and what reads them, are those that it was written from. If any part of the build is stale, no part of it is
used, because compiled modules call each other directly, past Python's module objects.

Without a build, or with KOHORT_PURE=1 in the environment, all is pure Python. Both run the same tests. This module is
imported first of all, by every process that imports anything of kohort, so it imports little itself.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec

HOT: tuple[str, ...] = (
    "kohort.broker.broker",
    "kohort.broker.shortcuts.commits",
    "kohort.broker.connection",
    "kohort.broker.handlers.groups",
    "kohort.broker.handlers.offsets",
    "kohort.broker.shortcuts.heartbeats",
    "kohort.broker.shortcuts.repeats",
    "kohort.broker.logs.partition",
    "kohort.broker.logs.tails",
    "kohort.broker.waits.shard_deadlines",
    "kohort.broker.group_shards",
    "kohort.broker.machines",
    "kohort.broker.state",
    "kohort.broker.topics.catalog",
    "kohort.broker.topics.topic_store",
    "kohort.broker.turn_builder",
    "kohort.broker.turn_schedule",
    "kohort.coordinator.classic.checks",
    "kohort.coordinator.hard_state",
    "kohort.coordinator.classic.join",
    "kohort.coordinator.classic.requests",
    "kohort.coordinator.consumer.checks",
    "kohort.coordinator.consumer.heartbeat",
    "kohort.coordinator.consumer.held_heartbeats",
    "kohort.coordinator.consumer.leave",
    "kohort.coordinator.consumer.lifecycle",
    "kohort.coordinator.consumer.members",
    "kohort.coordinator.consumer.classic_fields",
    "kohort.coordinator.consumer.responses",
    "kohort.coordinator.consumer.soft_state",
    "kohort.coordinator.consumer.group",
    "kohort.coordinator.deadlines",
    "kohort.coordinator.events",
    "kohort.coordinator.offsets.ownership_fence",
    "kohort.coordinator.offsets.offsets",
    "kohort.coordinator.effects",
    "kohort.coordinator.consumer.reconciliation",
    "kohort.coordinator.records",
    "kohort.coordinator.offsets.repeated_commit",
    "kohort.coordinator.classic.responses",
    "kohort.coordinator.soft_state",
    "kohort.coordinator.shard",
    "kohort.coordinator.steady_answer",
    "kohort.coordinator.classic.group",
    "kohort.coordinator.topics",
    "kohort.server.clock",
    "kohort.server.connection",
    "kohort.server.connections",
    "kohort.server.inflow",
    "kohort.server.turns",
    "kohort.storage.check",
    "kohort.storage.gathered",
    "kohort.storage.intact",
    "kohort.storage.sqlite_format",
    "kohort.wire.batches",
    "kohort.wire.codec",
    "kohort.wire.framing",
    "kohort.wire.records",
    "kohort.wire.skeleton",
)
"""The modules that are compiled as they are: those in which it was measured to pay (docs/how-to/compiled.md)."""

LIBRARIES = ("kohort_hot__mypyc", "kohort_typed__mypyc")
"""The extension modules with the code of the modules above and of the typed codec."""
MANIFEST = "manifest"
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_BUILD = os.path.join(_PACKAGE, "_compiled")
_TYPED = "kohort.wire.typed_"
_SUFFIX = EXTENSION_SUFFIXES[0]

in_use: frozenset[str] = frozenset()
"""The modules that are loaded compiled in this process; none in a pure one."""
why_pure = "it was not compiled"
"""Why `in_use` is empty, when it is."""


def running() -> str:
    """The text for users: "compiled" or "pure Python"."""
    return "compiled" if in_use else "pure Python"


class _Finder:
    """Of `sys.meta_path`."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname not in in_use and fullname not in LIBRARIES:
            return None
        file = os.path.join(_BUILD, fullname + _SUFFIX)
        spec = ModuleSpec(fullname, ExtensionFileLoader(fullname, file), origin=file)
        spec.has_location = True
        return spec


def use_what_there_is() -> None:
    """Called once, when the package is imported."""
    global in_use, why_pure
    if os.environ.get("KOHORT_PURE", "0") not in ("", "0"):
        why_pure = "KOHORT_PURE is set"
        return
    made_from = read_manifest(_BUILD)
    if not made_from:
        return
    why_pure = _unfit(made_from)
    if not why_pure:
        in_use = frozenset(made_from)


def _unfit(made_from: dict[str, str]) -> str:
    """Why a build cannot be used; "" when it can: then it is findable, and linked."""
    if not all(os.path.exists(os.path.join(_BUILD, library + _SUFFIX)) for library in LIBRARIES):
        return "the build is for another Python"
    for name, digest in made_from.items():
        if digest_of(name) != digest:
            return f"the build is stale: {name} has changed since"
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        for library in LIBRARIES:
            __import__(library)
    except (ImportError, ValueError) as error:  # librt is not there, or another one than it was built with
        sys.meta_path.remove(finder)
        return f"the build cannot be loaded: {error}"
    return ""


_digests: dict[str, str] = {}


def digest_of(name: str) -> str:
    """The digest of the inputs of a compiled module."""
    if name.startswith(_TYPED):
        name = _TYPED  # all of the generated code together
    if name not in _digests:
        from hashlib import blake2b

        digest = blake2b(digest_size=16)
        for file in _files_of(name):
            with open(file, "rb") as source:
                digest.update(source.read())
        _digests[name] = digest.hexdigest()
    return _digests[name]


def _files_of(name: str) -> list[str]:
    if name != _TYPED:
        return [os.path.join(_PACKAGE, *name.split(".")[1:]) + ".py"]
    wire = os.path.join(_PACKAGE, "wire")
    tables = sorted(file for file in os.listdir(os.path.join(wire, "schemas")) if file.endswith(".py"))
    parts = [
        "schema.py",
        "layout.py",
        "typed.py",
        "typed_values.py",
        *(os.path.join("schemas", file) for file in tables),
    ]
    return [os.path.join(wire, part) for part in parts]


def write_manifest(build: str, made_from: dict[str, str]) -> None:
    os.makedirs(build, exist_ok=True)
    with open(os.path.join(build, MANIFEST), "w", encoding="ascii") as file:
        file.writelines(f"{name} {digest}\n" for name, digest in made_from.items())


def _entry(line: str) -> tuple[str, str]:
    name, digest = line.split()
    return name, digest


def read_manifest(build: str) -> dict[str, str]:
    """Empty when there is none."""
    try:
        with open(os.path.join(build, MANIFEST), encoding="ascii") as file:
            return dict(_entry(line) for line in file)
    except (OSError, ValueError):
        return {}
