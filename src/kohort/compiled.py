"""Which of kohort's modules run compiled: the finder that loads them, and what it takes for them to be loaded.

`tools/compiled.py` compiles the hot modules with mypyc into `kohort/_compiled`, with a manifest: which Python they are
for, and a digest of what each was made from. A compiled module is loaded in place of its source only if the digest is
that of the source which is there now, so a stale build is never used; the typed codec, which has no source in the
package, is loaded if the tables, and what reads them, are those that it was written from. If anything of the build is
stale, nothing of it is used: the modules call each other without a look at what Python knows of them.

Without a build, or with KOHORT_PURE=1 in the environment, all is pure Python. Both run the same tests.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

HOT: tuple[str, ...] = (
    "kohort.broker.broker",
    "kohort.broker.connection",
    "kohort.broker.handlers.groups",
    "kohort.broker.handlers.offsets",
    "kohort.broker.heartbeats",
    "kohort.broker.partition",
    "kohort.broker.shard_deadlines",
    "kohort.broker.state",
    "kohort.broker.topics",
    "kohort.coordinator.checks",
    "kohort.coordinator.classic_group",
    "kohort.coordinator.consumer_checks",
    "kohort.coordinator.consumer_group",
    "kohort.coordinator.consumer_holds",
    "kohort.coordinator.consumer_responses",
    "kohort.coordinator.consumer_running",
    "kohort.coordinator.consumer_state",
    "kohort.coordinator.deadlines",
    "kohort.coordinator.events",
    "kohort.coordinator.fencing",
    "kohort.coordinator.offsets",
    "kohort.coordinator.outbox",
    "kohort.coordinator.reconciliation",
    "kohort.coordinator.records",
    "kohort.coordinator.responses",
    "kohort.coordinator.running",
    "kohort.coordinator.shard",
    "kohort.coordinator.state",
    "kohort.coordinator.topics",
    "kohort.server.connection",
    "kohort.server.connections",
    "kohort.server.inflow",
    "kohort.server.turns",
    "kohort.wire.batches",
    "kohort.wire.codec",
    "kohort.wire.framing",
    "kohort.wire.records",
)
"""The modules that are compiled as they are: those in which it was measured to pay (docs/performance.md)."""

LIBRARIES = ("kohort_hot__mypyc", "kohort_typed__mypyc")
"""What mypyc puts the code of these into, and that of the typed codec."""
_PACKAGE = Path(__file__).parent
_BUILD = _PACKAGE / "_compiled"
_TYPED = "kohort.wire.typed_"
_SUFFIX = EXTENSION_SUFFIXES[0]

in_use: frozenset[str] = frozenset()
"""The modules that are loaded compiled in this process; none in a pure one."""
why_pure = "it was not compiled"
"""Why `in_use` is empty, when it is."""


def running() -> str:
    """ "compiled" or "pure Python", for people."""
    return "compiled" if in_use else "pure Python"


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname not in in_use and fullname not in LIBRARIES:
            return None
        file = str(_BUILD / (fullname + _SUFFIX))
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, file))


def use_what_there_is() -> None:
    """Called once, when the package is imported."""
    global in_use, why_pure
    if os.environ.get("KOHORT_PURE", "0") not in ("", "0"):
        why_pure = "KOHORT_PURE is set"
        return
    made_from = read_manifest(_BUILD)
    if made_from is None:
        return
    why_pure = _unfit(made_from)
    if not why_pure:
        in_use = frozenset(made_from)
        sys.meta_path.insert(0, _Finder())


def _unfit(made_from: dict[str, str]) -> str:
    """Why a build cannot be used; "" if it can."""
    if not all((_BUILD / (library + _SUFFIX)).is_file() for library in LIBRARIES):
        return "the build is for another Python"
    try:
        import librt.strings  # noqa: F401  (the compiled modules are linked against it)
    except ImportError:
        return "librt is not installed"
    stale = sorted(name for name, digest in made_from.items() if digest_of(name) != digest)
    return f"the build is stale ({stale[0]} has changed since)" if stale else ""


_digests: dict[str, str] = {}


def digest_of(name: str) -> str:
    """Of what a compiled module is made from."""
    if name.startswith(_TYPED):
        name = _TYPED  # all of the generated code together
    if name not in _digests:
        if name == _TYPED:
            wire = _PACKAGE / "wire"
            files = [wire / "schema.py", wire / "layout.py", wire / "typed.py", wire / "typed_values.py"]
            files += sorted((wire / "schemas").glob("*.py"))
        else:
            files = [(_PACKAGE.parent / name.replace(".", "/")).with_suffix(".py")]
        digest = hashlib.blake2b(digest_size=16)
        for file in files:
            digest.update(file.read_bytes() if file.is_file() else b"")
        _digests[name] = digest.hexdigest()
    return _digests[name]


def write_manifest(build: Path, made_from: dict[str, str]) -> None:
    build.mkdir(parents=True, exist_ok=True)
    lines = (f"{name} {digest}\n" for name, digest in made_from.items())
    (build / "manifest").write_text("".join(lines), encoding="ascii")


def read_manifest(build: Path) -> dict[str, str] | None:
    try:
        lines = (build / "manifest").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return dict(line.split(" ", 1) for line in lines)
