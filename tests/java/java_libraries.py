"""Java's libraries that tests need: Maven copies them once, into .jars, until what is asked for changes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import _kafka

KEPT = Path(__file__).parents[2] / ".jars"
POM = Path(__file__).with_name("pom.xml")


def kafka() -> str:
    """The class path of Apache Kafka's server and clients. KAFKA_LIB names another folder that has them."""
    folder = os.environ.get("KAFKA_LIB") or kept("kafka", _kafka.JAVA / "pom.xml", _kafka.fetch_jars)
    return f"{folder}/*"


def clients() -> str:
    """The class path of the programs of these tests."""

    def copy(into: Path) -> None:
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={into}"]
        subprocess.run(command, check=True, timeout=500)

    return f"{kept('clients', POM, copy)}/*"


def kept(name: str, pom: Path, fetch: Callable[[Path], object], version: str = "") -> Path:
    """The folder that `fetch` has filled, now or in an earlier run with the same pom and version."""
    folder = KEPT / f"{name}-{hashlib.sha256(pom.read_bytes() + version.encode()).hexdigest()[:12]}"
    if not folder.exists():
        KEPT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as made:
            fetch(fetched := Path(made, "lib"))
            try:
                fetched.rename(folder)
            except OSError:  # another process of these tests was quicker
                assert folder.exists()
    return folder
