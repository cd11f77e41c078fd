"""`kohort serve` is read without typer, and with it: to the same end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import kohort.cli.serve
from kohort import __version__, compiled
from kohort.cli.commands import load
from kohort.cli.plain import VALUE_FLAGS, plain_start

PLAIN: list[tuple[list[str], dict[str, Any]]] = [
    (["serve"], {}),
    (["serve", "--in-memory"], {"in_memory": True}),
    (["serve", "--data-dir", "/d", "--data-dir=/e"], {"data_dir": "/e"}),
    (["serve", "--brokers=3", "--listeners", "a:1,b:2"], {"brokers": 3, "listeners": "a:1,b:2"}),
    (["serve", "--set", "a=1", "--set=b=2", "--in-memory"], {"setting": ["a=1", "b=2"], "in_memory": True}),
    (["serve", "--config", "a file"], {"config": Path("a file")}),
    (["serve", "--advertised-listeners", "b"], {"advertised_listeners": "b"}),
]
LEFT_TO_TYPER = [
    [],
    ["--version"],
    ["topics", "list"],
    ["serve", "--help"],
    ["serve", "--list-settings"],
    ["serve", "--in-memory=yes"],
    ["serve", "--nonsense", "1"],
    ["serve", "--data"],
    ["serve", "--data-dir"],
    ["serve", "--data-dir", ""],
    ["serve", "--data-dir="],
    ["serve", "--data-dir", "--in-memory"],
    ["serve", "--brokers", "three"],
    ["serve", "--brokers", "-1"],
    ["serve", "--brokers", "٣"],
    ["serve", "more"],
    ["serve", "--"],
    ["--", "serve"],
]


@pytest.mark.parametrize(("words", "found"), PLAIN, ids=str)
def test_flags_that_are_parsed_without_typer(words: list[str], found: dict[str, Any]) -> None:
    assert plain_start(words) == found


@pytest.mark.parametrize("words", LEFT_TO_TYPER, ids=str)
def test_flags_that_typer_parses(words: list[str]) -> None:
    assert plain_start(words) is None


def test_the_flags_are_those_of_the_command() -> None:
    others = {"--in-memory", "--list-settings", "--help", "-h"}
    assert {name for parameter in load("serve").params for name in parameter.opts} - others == set(VALUE_FLAGS)


DEFAULTS = dict.fromkeys([flag[2:].replace("-", "_") for flag in VALUE_FLAGS if flag != "--set"]) | {
    "setting": None,
    "in_memory": False,
}
VALUES = st.sampled_from(["3", "0", "007", "+1", " 1", "٣", "host:9092", "a=b", "=", "-", "--in-memory"]) | st.text(
    max_size=3
)
FLAGS = st.one_of(
    st.just(["--in-memory"]),
    st.tuples(st.sampled_from(VALUE_FLAGS), VALUES).map(list),
    st.tuples(st.sampled_from([*VALUE_FLAGS, "--in-memory"]), VALUES).map(lambda pair: ["=".join(pair)]),
    st.text(max_size=5).map(lambda word: [word]),
)


@given(st.lists(FLAGS, max_size=4))
def test_typer_reads_the_same(flags: list[list[str]]) -> None:
    words = [word for flag in flags for word in flag]
    plain = plain_start(["serve", *words])
    if plain is None:
        return
    calls: list[dict[str, Any]] = []

    def started(**arguments: Any) -> int:
        calls.append(arguments)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kohort.cli.serve, "start", started)
        result = CliRunner().invoke(kohort.cli.serve.app, words)
    assert result.exit_code == 0, result.output
    assert calls == [{**DEFAULTS, **plain}]


def test_the_version() -> None:
    program = "from kohort.cli.main import main; main(['--version'])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == f"kohort {__version__} ({compiled.running()})\n"


def test_a_reader_that_is_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = "from kohort.cli.main import main; main(['--version'])"
    ran = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (1, "")
