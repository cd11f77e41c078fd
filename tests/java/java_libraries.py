"""The libraries of tests in Java: Maven copies them once into .jars, and again only if the list changes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import _kafka

KEPT = Path(__file__).parents[2] / ".jars"
POM = Path(__file__).with_name("pom.xml")
FLINK_POM = POM.parent / "flink" / "pom.xml"


def kafka() -> str:
    """The class path of Apache Kafka's server and clients. KAFKA_LIB names another folder that has them."""
    folder = os.environ.get("KAFKA_LIB") or kept("kafka", [_kafka.JAVA / "pom.xml"], _kafka.fetch_jars)
    return f"{folder}/*"


def clients() -> str:
    """The class path of the programs in this folder, which are compiled, and of what they need."""
    return _programs("clients", POM)


def flink() -> str:
    """The same for Apache Flink, which brings its own Kafka client."""
    return _programs("flink", FLINK_POM)


def _programs(name: str, pom: Path) -> str:
    def copy(into: Path) -> None:
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={into}"]
        subprocess.run(command, check=True, timeout=500)

    libraries = f"{kept(name, [pom], copy)}/*"
    sources = sorted(pom.parent.glob("*.java"))

    def compile_into(folder: Path) -> None:
        command = ["javac", "-nowarn", "-cp", libraries, "-d", str(folder), *map(str, sources)]
        subprocess.run(command, check=True, timeout=300)

    return f"{kept(f'{name}-programs', [pom, *sources], compile_into)}:{libraries}"


def kept(name: str, of: Sequence[Path], fetch: Callable[[Path], object], version: str = "") -> Path:
    """The folder that `fetch` has filled, now or in an earlier run with the same files `of` and version."""
    digest = hashlib.sha256(version.encode() + b"".join(path.read_bytes() for path in of)).hexdigest()
    folder = KEPT / f"{name}-{digest[:12]}"
    if not folder.exists():
        KEPT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as made:
            fetch(fetched := Path(made, "lib"))
            try:
                fetched.rename(folder)
            except OSError:  # another process of these tests was quicker
                assert folder.exists()
    return folder
