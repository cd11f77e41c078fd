"""`kohort service print`: the unit of systemd, and the command line in it."""

from __future__ import annotations

import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest
from run_command import Ran
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.cli.plain import plain_start
from kohort.cli.service.unit import unit


def printed(*arguments: str, code: int = 0) -> Ran:
    result = CliRunner().invoke(app, ["service", "print", *arguments])
    ran = Ran(result.exit_code, result.stdout, result.stderr)
    assert ran.code == code, ran
    return ran


def parsed(text: str) -> ConfigParser:
    """The lines of a unit; one that is there twice counts with its last value."""
    parser = ConfigParser(interpolation=None, strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def test_the_unit(tmp_path: Path) -> None:
    service = parsed(printed("--program", "/opt/kohort/bin/kohort").out)["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"] == "/opt/kohort/bin/kohort serve --data-dir /var/lib/kohort"
    assert (service["User"], service["StateDirectory"]) == ("kohort", "kohort")
    assert service["RestartPreventExitStatus"] == "2 74"
    assert (service["ProtectSystem"], service["ProtectHome"], service["LimitNOFILE"]) == ("strict", "yes", "65536")
    assert service["RestrictAddressFamilies"] == "AF_INET AF_INET6 AF_UNIX"
    own = parsed(printed().out)["Service"]["ExecStart"].split()[0]
    assert Path(own).is_absolute()
    assert Path(own).name == "kohort"


def test_settings_reach_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "a file%.properties"
    file.write_text("num.partitions=3\n")
    given = (
        "--listeners",
        "10.0.0.1:9092",
        "--advertised-listeners",
        "kafka.example.org",
        "--set",
        "super.users=a:$b c",
    )
    arguments = ("--user", "me", "--data-dir", "/srv/kohort", "--config", str(file), *given)
    with_acls = ("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    service = parsed(printed(*arguments, *given, *with_acls, "--set", "max.connections=100000").out)["Service"]
    assert service["User"] == "me"
    assert "StateDirectory" not in service
    assert (service["ReadWritePaths"], service["LimitNOFILE"]) == ("/srv/kohort", "100100")
    words = shlex.split(service["ExecStart"].replace("$$", "$").replace("%%", "%"))[1:]
    start = plain_start(words)
    assert start is not None
    assert (start["data_dir"], start["config"]) == ("/srv/kohort", file)
    assert start["setting"] == [
        "super.users=a:$b c",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "max.connections=100000",
        "listeners=10.0.0.1:9092",
        "advertised.listeners=kafka.example.org",
    ]


def test_a_data_directory_in_a_home() -> None:
    text = unit("me", ["/bin/kohort"], Path("/home/me/kohort"), 10)
    assert "ProtectHome" not in text
    assert "ReadWritePaths=/home/me/kohort\n" in text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--set num.partition=3", "did you mean num.partitions?"),
        ("--set num.partitions=none", "num.partitions"),
        ("--set ssl.key.password=secret", "ssl.key.password would be readable in the unit"),
        ("--set listener.name.a.plain.sasl.jaas.config=x", "would be readable in the unit"),
        ("--set num.partitions", "is not NAME=VALUE"),
        ("--user a:b", "'a:b' is no user name"),
        ("--data-dir data", "'data' is not an absolute path"),
        ("--config kohort.properties", "'kohort.properties' is not an absolute path"),
        ("--listeners nowhere", "listeners is 'nowhere'"),
    ],
)
def test_what_is_refused(arguments: str, why: str) -> None:
    assert why in " ".join(printed(*arguments.split(), code=2).err.split())
