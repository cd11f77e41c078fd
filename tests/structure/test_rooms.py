"""The shape of the tree: no import circle between files, no file and no folder that has grown into a heap."""

from __future__ import annotations

import ast
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
MAX_LINES = 500
MAX_FILES = 22
TABLES = {"wire/schemas"}
"""Folders of pure tables, one file an API: any number of files."""


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, set[str]]:
    """Which module imports which: at the top, in a function, or for its types alone."""
    files = {module_name(path): path for path in sorted(SRC.rglob("*.py"))}
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names if alias.name in files}
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    if inner in files:
                        graph[name].add(inner)
                    elif node.module in files:
                        graph[name].add(node.module)
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_no_files_import_each_other_in_a_circle() -> None:
    found = circles(import_graph())
    assert not found, "import circles:\n" + "\n".join("  " + " ".join(circle) for circle in found)


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
