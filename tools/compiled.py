"""Compiles kohort's hot modules with mypyc: `python tools/compiled.py`, or `make compiled`.

It copies the package into build/compiled, writes the typed codec beside it from the schema tables (kohort.wire.typed),
compiles HOT, and puts the extension modules into src/kohort/_compiled with a manifest of what they were made from,
which `kohort.compiled` compares with what is there when it loads them. Nothing of this is committed.

Needs a C compiler and what `pip install mypy setuptools` brings. The environment variable KOHORT_JOBS says how many
files are compiled at a time, KOHORT_OPTIMIZE how far the C compiler goes (0 to 3; CI takes 0, which is quicker).
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
BUILD = ROOT / "build" / "compiled"
TARGET = SOURCE / "kohort" / "_compiled"
FLAGS = ("--ignore-missing-imports", "--no-warn-unused-ignores")


def main() -> None:
    sys.path.insert(0, str(SOURCE))
    os.environ["KOHORT_PURE"] = "1"
    from kohort.compiled import HOT, LIBRARIES, digest_of, read_manifest, write_manifest

    tree = BUILD / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(SOURCE / "kohort", tree / "kohort", ignore=shutil.ignore_patterns("__pycache__", "_compiled"))
    hot, typed = LIBRARIES
    modules = {hot: list(HOT), typed: write_typed(tree)}
    made_from = {name: digest_of(name) for names in modules.values() for name in names}
    former = read_manifest(str(BUILD / "lib"))
    write_manifest(str(BUILD / "lib"), {})
    stale = {
        library.removesuffix("__mypyc"): names
        for library, names in modules.items()
        if any(former.get(name) != made_from[name] for name in names) or not any((BUILD / "lib").glob(library + ".*"))
    }
    if stale:
        compile_all(tree, stale)
    write_manifest(str(BUILD / "lib"), made_from)
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    for file in sorted((BUILD / "lib").rglob("*.so")):
        name = ".".join(file.relative_to(BUILD / "lib").parts)
        if name.partition(".cpython")[0] in {*made_from, *LIBRARIES}:
            shutil.copy2(file, TARGET / name)
    write_manifest(str(TARGET), made_from)
    size = sum(file.stat().st_size for file in TARGET.iterdir())
    print(f"{len(made_from)} modules compiled into {TARGET.relative_to(ROOT)}, {size / 1e6:.1f} MB")


def write_typed(tree: Path) -> list[str]:
    """The names of the generated modules."""
    import kohort.wire.schemas
    from kohort.wire import typed
    from kohort.wire.schema import all_schemas

    tables = [f"kohort.wire.schemas.{module.name}" for module in pkgutil.iter_modules(kohort.wire.schemas.__path__)]
    for name in tables:
        importlib.import_module(name)
    schemas = all_schemas()
    names = []
    for name in tables:
        generated = typed.module_name(name)
        (tree / generated.replace(".", "/")).with_suffix(".py").write_text(typed.typed_source(name, schemas))
        names.append(generated)
    return [typed.VALUES, *names]


def compile_all(tree: Path, groups: dict[str, list[str]]) -> None:
    """Each group of modules becomes one library, in which they call each other as C functions do."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    os.chdir(tree)
    extensions = []
    for group, names in groups.items():
        extensions += mypycify(
            [
                *FLAGS,
                *(name.replace(".", "/") + ".py" for name in names),
            ],
            opt_level=os.environ.get("KOHORT_OPTIMIZE", "2"),
            debug_level="0",
            group_name=group,
            target_dir=str(BUILD / "c" / group),
        )
    for extension in extensions:
        extension.extra_link_args = ["-s"]
    # The libraries take long, the modules themselves do not: they only name what is in the libraries.
    extensions.sort(key=lambda extension: not extension.name.endswith("__mypyc"))
    command = build_ext(Distribution({"name": "kohort", "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(BUILD / "lib"), str(BUILD / "temp")
    command.parallel = int(os.environ.get("KOHORT_JOBS", "2"))
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    main()
