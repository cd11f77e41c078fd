"""The shape of the tree: imports point down and in no circle, the core is pure, files and folders are small.

Changing the tables below is a design decision (docs/decisions/).
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"

# Package (or module): what of kohort it may import besides itself; "a.b" allows that part of package a alone. A module
# of a package, "package.module", has this besides what its package has.
MAY_IMPORT: dict[str, set[str]] = {
    "kohort": {"compiled"},
    "compiled": set(),
    "config": {"properties", "security"},
    "properties": set(),
    "security": set(),
    "wire": {"compiled"},
    "coordinator": {"wire", "config"},
    "storage": {"wire"},
    "broker": {"wire", "config", "security", "coordinator", "storage"},
    "server": {
        "wire",
        "compiled",
        "config",
        "security",
        "storage",
        "broker",
        "coordinator.events",
        "coordinator.assignors",
        "coordinator.patterns",
    },
    "gateway": {"wire", "config", "security", "broker", "storage", "server", "client"},
    "testing": {"config", "security", "server", "broker", "storage", "client", "wire"},
    "testing.rebalance_report": {"cli.groups"},
    "client": {"wire", "properties", "security"},
    "simulator": {"wire", "config", "coordinator", "storage", "broker", "client"},
    "conformance": {"wire", "client"},
    "spark": {"wire", "client"},
    "spark.reports.simulation": {"simulator.sizing"},
    "spark.reports.simulation_report": {"simulator.sizing"},
    "spark.reports.fleet_report": {"simulator.sizing"},
    "demo": {"wire", "client", "spark", "cli"},
    "console": {"wire", "client", "cli.groups", "cli.output"},
    "console.changes.groups": {"cli.option_objects"},
    "console.changes.offsets": {"cli.places"},
    "console.changes.shares": {"cli.option_objects", "cli.places"},
    "console.changes.screens": {"cli.option_objects"},
    "console.changes.topics": {"cli.configs", "cli.option_objects", "cli.places", "cli.topics"},
    "console.what_if.child": {"simulator.sizing"},
    "cli": {
        "compiled",
        "config",
        "properties",
        "security",
        "server",
        "gateway",
        "client",
        "wire",
        "spark",
        "demo",
        "conformance",
        "console",
        "simulator",
        "broker.authorization",
        "broker.security",
        "coordinator.assignors",
        "coordinator.patterns",
        "storage.postgres",
    },
    "__main__": {"cli"},
}

# Modules that pure modules must not import: clock, IO, chance, logging.
IMPURE = {
    "asyncio", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random", "select", "selectors",
    "shutil", "signal", "socket", "sqlite3", "ssl", "structlog", "subprocess", "sys", "tempfile", "threading", "time",
    "uvloop",
}  # fmt: skip
PURE_PACKAGES = ("wire", "coordinator")
IMPURE_CALLS = {"open", "print", "input"}

MAX_LINES = 500
MAX_FILES = 22
TABLES = {"wire/schemas"}
"""Folders of pure tables, one file an API: any number of files."""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted((SRC / "kohort").rglob("*.py")):
        parts = path.relative_to(SRC / "kohort").with_suffix("").parts
        yield (parts[0] if parts[0] != "__init__" else "kohort"), path


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Lines and names."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; the project's imports are absolute"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def test_every_package_has_a_place() -> None:
    packages = {package for package, _ in modules()} - {"kohort"}
    assert packages <= set(MAY_IMPORT), f"say in MAY_IMPORT what {packages - set(MAY_IMPORT)} may import"


def test_imports_point_down() -> None:
    wrong = []
    for package, path in modules():
        module = ".".join(path.relative_to(SRC / "kohort").with_suffix("").parts)
        allowed = MAY_IMPORT.get(package, set()) | MAY_IMPORT.get(module, set())
        for line, name in imports(path):
            parts = name.split(".")
            if parts[0] != "kohort" or len(parts) == 1 or parts[1].startswith("__"):
                continue
            if parts[1] != package and not {parts[1], ".".join(parts[1:3])} & allowed:
                wrong.append(f"{path.relative_to(SRC)}:{line}: {package} may not import {name}")
    assert not wrong, "\n".join(wrong)


def test_no_files_import_each_other_in_a_circle() -> None:
    """This includes imports in functions and imports for types. The CycleError names the files."""
    graph: dict[str, set[str]] = {}
    for path in SRC.rglob("*.py"):
        graph[".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")] = {
            name for _, name in imports(path)
        }
    for module, names in graph.items():
        files = {name if name in graph else name.rpartition(".")[0] for name in names}
        graph[module] = (files & graph.keys()) - {module}
    assert sum(map(len, graph.values())) > 100, "the imports were not read"
    TopologicalSorter(graph).prepare()


def test_files_are_short() -> None:
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in SRC.rglob("*.py")}
    long = [f"{path.relative_to(SRC)}: {n} lines" for path, n in sorted(lengths.items()) if n > MAX_LINES]
    assert not long, f"more than {MAX_LINES} lines; split at the subjects:\n" + "\n".join(long)


def test_folders_are_rooms() -> None:
    full = []
    for folder in sorted({path.parent for path in SRC.rglob("*.py")}):
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        if len(files) > MAX_FILES and folder.relative_to(SRC / "kohort").as_posix() not in TABLES:
            full.append(f"{folder.relative_to(SRC)}: {len(files)} files")
    assert not full, f"more than {MAX_FILES} files; which rooms are missing?\n" + "\n".join(full)


@pytest.mark.conformance("R6")
@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_the_core_is_pure(package: str) -> None:
    wrong = []
    for path in sorted((SRC / "kohort" / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for line, name in imports(path):
            if name.split(".")[0] in IMPURE:
                wrong.append(f"{path.relative_to(SRC)}:{line}: imports {name}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
                wrong.append(f"{path.relative_to(SRC)}:{node.lineno}: calls {node.func.id}()")
    assert not wrong, "\n".join(wrong)


def test_the_source_registers_without_the_server_side() -> None:
    """`pyspark_kohort` is imported by every Spark worker: it may not pull in the server."""
    for path in sorted((SRC / "pyspark_kohort").rglob("*.py")):
        for line, name in imports(path):
            assert not name.startswith("kohort.") or name.startswith("kohort.spark"), f"{path}:{line}: {name}"


def test_only_the_simulation_pipeline_loads_the_simulator() -> None:
    """The source and the sink serve users of any cluster, in every executor."""
    program = (
        "import sys, kohort.spark.source.data_source, kohort.spark.runtime.session, kohort.spark.lake.ingest\n"
        "import pyspark_kohort\n"
        "print([name for name in sys.modules if name.startswith(('kohort.simulator', 'kohort.broker'))])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
