"""Compiled modules: the report of them, their loading, and the refusal of stale ones."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kohort import compiled
from kohort.wire.schema import all_schemas
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.typed import module_name, typed_source

SOURCE = str(Path(__file__).parents[1] / "src")


def told(code: str, **environment: str) -> str:
    """The output of another process."""
    inherited = {name: value for name, value in os.environ.items() if name != "KOHORT_PURE"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | {"PYTHONPATH": SOURCE} | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.strip()


def test_it_can_be_forced_to_be_pure() -> None:
    code = "from kohort import compiled; import kohort.wire.framing as f; print(compiled.running(), f.__file__[-3:])"
    assert told(code, KOHORT_PURE="1") == "pure Python .py"


@pytest.mark.parametrize("name", compiled.HOT)
def test_all_compiled_modules_are_built(name: str) -> None:
    file = importlib.import_module(name).__file__ or ""
    assert ("_compiled" in file) == (name in compiled.in_use)
    assert compiled.digest_of(name) != compiled.digest_of("kohort.wire.schema")


def test_a_build_that_does_not_fit_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.read_manifest(str(tmp_path)) == {}
    made_from = {name: compiled.digest_of(name) for name in (*compiled.HOT, "kohort.wire.typed_values")}
    compiled.write_manifest(str(tmp_path), made_from)
    assert compiled.read_manifest(str(tmp_path)) == made_from
    monkeypatch.setattr(compiled, "_BUILD", str(tmp_path))
    assert compiled._unfit(made_from) == "the build is for another Python"
    for library in compiled.LIBRARIES:
        (tmp_path / (library + compiled._SUFFIX)).write_bytes(b"")
    stale = compiled.HOT[3]
    assert compiled._unfit(made_from | {stale: "0"}) == f"the build is stale: {stale} has changed since"
    finders = list(sys.meta_path)
    for library in compiled.LIBRARIES:
        monkeypatch.delitem(sys.modules, library, raising=False)
    assert compiled._unfit(made_from).startswith("the build cannot be loaded: ")
    assert sys.meta_path == finders


def test_the_typed_codec_is_written_from_the_tables() -> None:
    assert module_name(HeartbeatRequest.__module__) == "kohort.wire.typed_heartbeat"
    source = typed_source(HeartbeatRequest.__module__, all_schemas())
    compile(source, "typed_heartbeat", "exec")
    assert "read_nullable_string(buf, pos, compact, 'group_instance_id')" in source
    files = [Path(file).name for file in compiled._files_of(compiled._TYPED)]
    assert {"schema.py", "layout.py", "typed.py", "typed_values.py", "heartbeat.py", "fetch.py"} <= set(files)
