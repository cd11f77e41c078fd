"""Wrong usage is exit code 2, an unreachable cluster 3; neither prints a traceback."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kohort.cli.commands import COMMANDS, app
from kohort.cli.connect import complete_topics
from kohort.cli.option_objects import choice

SUB_COMMANDS = (
    *("service", "cluster", "topics", "groups", "configs", "transactions", "users", "certificates"),
    *("acls", "quotas", "metrics"),
)
WRONG = [
    ["nonsense"],
    ["topics", "nonsense"],
    ["topics", "create"],
    ["topics", "create", "t", "--partitions", "none"],
    ["topics", "create", "t", "--partitions", "0"],
    ["topics", "create", "t", "--config", "retention.ms"],
    ["topics", "list", "-o", "xml"],
    ["topics", "list", "-b", "host:port"],
    ["topics", "list", "-b", ""],
    ["topics", "list", "-b", "http://localhost:9092"],
    ["groups", "list", "--state", "Stabel"],
    ["groups", "list", "--type", "modern"],
    ["groups", "describe"],
    ["groups", "describe", "g", "--members", "--state"],
    ["groups", "describe", "g", "--verbose"],
    ["transactions", "list", "--state", "Ongonig"],
    ["transactions", "list", "--open-for", "long"],
    ["transactions", "list", "--producer-id", "payments"],
    ["transactions", "describe"],
    ["transactions", "abort"],
    ["transactions", "abort", "t", "--topic", "t"],
    ["transactions", "abort", "--topic", "t"],
    ["transactions", "abort", "--partition", "0"],
    ["transactions", "find-hanging", "--idle-for", "0s"],
    ["consume", "t", "--offset", "soon"],
    ["consume", "t", "--offset", "latest", "--from-beginning"],
    ["consume", "t", "-o", "table"],
    ["consume", "t", "--format", "%q"],
    ["consume", "t", "--isolation", "none"],
    ["consume", "t", "-o", "json", "--format", "%v"],
    ["produce", "t", "--key-separator", ""],
    ["produce", "t", "--acks", "2"],
    ["produce", "t", "--file", "/nowhere/at/all"],
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert "Error: " in result.stderr
    options = [word for word in arguments if word.startswith("-")]
    assert not options or any(option in result.stderr for option in options)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-o", "xml"], "'xml' is not one of table, json, yaml"),
        (["-o", "jsn"], "'jsn' is not one of table, json, yaml; did you mean json?"),
        (["--state", "Stabel"], "did you mean Stable?"),
        (["--state", "empt"], "did you mean Empty?"),
        (
            ["--type", "consumers"],
            "is not one of classic, consumer, share, streams; did you mean consumer?",
        ),
        (
            ["-b", "http://a:1/b"],
            "'http://a:1/b'; expected HOST:PORT without a scheme, such as a:1",
        ),
    ],
)
def test_a_wrong_value_is_one_line(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(app, ["groups", "list", *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith(f"{told}\n")


@pytest.mark.parametrize(("words", "meant"), [(["g"], "'gateway', 'groups'"), (["groups", "reset"], "'reset-offsets'")])
def test_the_beginning_of_a_command(words: list[str], meant: str) -> None:
    """`reset` alone is no near word of `reset-offsets` for difflib."""
    told = CliRunner().invoke(app, words).stderr
    assert f"No such command {words[-1]!r}. Did you mean {meant}?" in told


@pytest.mark.parametrize("command", ["", *SUB_COMMANDS])
def test_the_list_of_commands_is_not_cut(command: str) -> None:
    """At 80 columns."""
    listed = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80"}).stdout
    commands = listed.partition("Commands:\n")[2]
    assert commands
    assert "...\n" not in commands


def test_a_missing_argument_shows_the_usage() -> None:
    assert "Usage: " in CliRunner().invoke(app, ["topics", "create"]).stderr


def test_choices_in_any_case_and_completed() -> None:
    parse, complete = choice(["Stable", "Empty"]).values()
    assert [parse("stable"), parse("EMPTY")] == ["Stable", "Empty"]
    assert complete("s") == ["Stable"]


def test_the_port_of_a_web_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        result = CliRunner().invoke(app, ["topics", "list", "-b", f"127.0.0.1:{server.getsockname()[1]}"])
        thread.join()
    assert result.exit_code == 3
    assert "answered in HTTP: this is the port of a web server" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["topics", "create", "t"],
        ["topics", "delete", "t", "--yes"],
        ["groups", "list"],
        ["groups", "describe", "g"],
        ["transactions", "list"],
        ["transactions", "abort", "t", "--yes"],
        ["transactions", "find-hanging"],
        ["consume", "t"],
        ["produce", "t"],
    ],
    ids=" ".join,
)
def test_an_unreachable_cluster(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.cli.connect.BOOTSTRAP_TIMEOUT_MS", 50)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    result = CliRunner().invoke(app, [*arguments, "-b", address])
    assert result.exit_code == 3, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"{address}: connection refused" in result.stderr
    assert "--bootstrap-server" in result.stderr


def test_completion_of_an_unreachable_cluster_is_empty_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        params = {"bootstrap_server": "127.0.0.1:1"}

    monkeypatch.setattr("kohort.cli.connect.COMPLETION_TIMEOUT_MS", 50)
    assert complete_topics(Context(), "") == []  # type: ignore[arg-type]


def test_help_names_every_command_and_the_exit_codes() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert name in result.stdout
    assert "Exit codes" in result.stdout


@pytest.mark.parametrize("name", ["transactions", "groups"])
def test_the_list_of_commands_has_whole_sentences_at_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, _, listed = CliRunner().invoke(app, [name, "--help"]).stdout.partition("Commands:")
    assert listed
    assert "..." not in listed


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["groups", "explain"], "{GROUP}"),
        (["groups", "hold"], "{GROUP}"),
        (["groups", "assign"], "{GROUP}"),
        (["groups", "describe"], "[GROUP|PATTERN]..."),
        (["groups", "delete"], "{GROUP}..."),
        (["topics", "delete-records"], "{TOPIC[:P,P…]}"),
        (["transactions", "describe"], "{TRANSACTIONAL-ID}..."),
        (["transactions", "abort"], "[TRANSACTIONAL-ID]"),
    ],
    ids=" ".join,
)
def test_arguments_have_names_in_capitals(command: list[str], arguments: str) -> None:
    first = CliRunner().invoke(app, [*command, "--help"]).stdout.splitlines()[0]
    assert first.endswith(f" {arguments}")


@pytest.mark.parametrize("option", ["--port", "--prt"])
def test_an_option_for_the_port_of_a_server(option: str) -> None:
    result = CliRunner().invoke(app, ["serve", option, "3"])
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: No such option: {option} (Possible options: --listeners HOST:PORT)\n")
    result = CliRunner().invoke(app, ["serve", "--broker", "3"])
    assert "--listeners HOST:PORT" not in result.stderr
    assert "--brokers" in result.stderr


def test_commands_do_not_import_the_server_side() -> None:
    for name in (
        "topics/app",
        "groups/app",
        "transactions/app",
        "records/produce",
        "records/consume",
        "connect",
        "output",
        "main",
        "commands",
    ):
        text = (Path(__file__).parents[2] / "src" / "kohort" / "cli" / f"{name}.py").read_text(encoding="utf-8")
        assert "kohort.server" not in text
        assert "kohort.broker" not in text
