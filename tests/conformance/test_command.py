"""`kohort conformance` against a strict server, one with TLS and SASL, several brokers, and one that lies."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lying_front import Change, LyingFront, another_error, no_answer_to_joins, no_protocol
from run_command import Ran
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.client.cluster import Cluster
from kohort.conformance.target import PREFIX
from kohort.testing import KohortServer

ROWS = "J2,J6,O2,W1-W9,TX17"
"""No clock decides what the files of these rows are answered with."""


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(compatibility="kafka") as running:
        yield running


def conformance(*arguments: str, code: int = 0) -> Ran:
    result = CliRunner().invoke(app, ["conformance", *arguments])
    ran = Ran(result.exit_code, result.stdout, result.stderr)
    assert ran.code == code, ran
    assert "Traceback" not in ran.err
    return ran


def found(ran: Ran) -> dict[str, dict[str, Any]]:
    return {row["row"]: row for row in json.loads(ran.out)["rows"]}


def left(cluster: Cluster) -> list[str]:
    """What a run has not removed."""
    groups = [group.group_id for group in cluster.list_groups()]
    return [name for name in (*groups, *cluster.topics()) if name.startswith(PREFIX)]


def test_a_strict_server_keeps_the_rows(server: KohortServer, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = conformance("-b", server.bootstrap_servers, "--quick", "--rows", ROWS, "-o", "json", "--page", str(page))
    states = {name: row["state"] for name, row in found(ran).items()}
    assert set(states.values()) == {"kept"}, ran
    assert {"J6", "O2", "W9", "TX17"} == states.keys() - {f"W{n}" for n in range(1, 9)} - {"J2"}
    assert {"J3", "TX16"} & states.keys() == set()
    with Cluster(server.bootstrap_servers) as cluster:
        assert left(cluster) == []
    text = page.read_text(encoding="utf-8")
    assert '<tr id="J2">' in text
    assert re.findall(r"(?:src|href)=", text) == [], "the page needs something else"


def test_all_brokers_of_a_cluster_are_one(tmp_path: Path) -> None:
    """The groups and transactions are at one broker, whatever their names."""
    with KohortServer(compatibility="kafka", brokers=3) as server:
        ran = conformance("-b", server.bootstrap_servers, "--quick", "--rows", "J2,W4,TX17", "-o", "json")
        assert {row["state"] for row in found(ran).values()} == {"kept"}, ran
        with Cluster(server.bootstrap_servers) as cluster:
            assert left(cluster) == []


def test_with_tls_and_sasl(tmp_path: Path) -> None:
    with KohortServer(compatibility="kafka", security="SASL_SSL", users={"alice": "a-password-of-hers"}) as server:
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in server.client_config().items()))
        where = ("-b", server.bootstrap_servers, "--command-config", str(file))
        ran = conformance(*where, "--quick", "--rows", "J2,W4,W5,TX17", "-o", "json")
        assert {row["state"] for row in found(ran).values()} == {"kept"}, ran


def lied_to(change: Change, *arguments: str, code: int) -> Ran:
    front = LyingFront(change)
    with KohortServer(compatibility="kafka", advertised_listeners=front.address) as server, _before(front, server):
        return conformance("-b", front.address, "--quick", *arguments, code=code)


def _before(front: LyingFront, server: KohortServer) -> LyingFront:
    return front.to(int(server.listeners.rpartition(":")[2]))


def test_a_wrong_answer_is_different_and_says_which(tmp_path: Path) -> None:
    ran = lied_to(another_error, "--rows", "J2,W4", "-o", "json", code=1)
    rows = found(ran)
    assert (rows["J2"]["state"], rows["W4"]["state"]) == ("different", "kept")
    [difference] = rows["J2"]["differences"]
    assert difference["file"] == "join_refused"
    assert difference["asked"].startswith("join ")
    assert "error=42 INVALID_REQUEST" in difference["came"][0]
    assert difference["expected"][0] == difference["came"][0].replace(
        "42 INVALID_REQUEST", "26 INVALID_SESSION_TIMEOUT"
    )
    assert "consumers" in rows["J2"]["clients"]
    # The same table makes the next run a success: these differences are known.
    table = tmp_path / "known.json"
    table.write_text(ran.out)
    text = lied_to(another_error, "--rows", "J2,W4", "--known", str(table), code=0).out
    assert "J2 is different: session timeout outside of the broker's bounds: 26" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("change", "says"), [(no_answer_to_joins, "closed"), (no_protocol, "no good answer")])
def test_no_answer_is_different_too(change: Change, says: str) -> None:
    rows = found(lied_to(change, "--rows", "J2", "-o", "json", code=1))
    [difference] = rows["J2"]["differences"]
    assert says in difference["came"][0]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--rows", "ZZ"], 2, "'ZZ' is no row and no letter of rows"),
        (["--rows", "J99"], 2, "did you mean J"),
        (["--known", "nowhere.json"], 2, "cannot read nowhere.json"),
        (["--parallel", "0"], 2, "--parallel"),
        (["-b", "127.0.0.1:x"], 2, "--bootstrap-server"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], code: int, says: str) -> None:
    err = conformance(*arguments, code=code).err
    assert says in err, err
    assert len(err.strip().splitlines()) == 1 or "Usage" in err, err


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    for text in ("[]", "{}", "not json", '{"format": 9, "rows": []}'):
        (file := tmp_path / "table.json").write_text(text)
        assert "cannot read" in conformance("--known", str(file), code=2).err


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = "{}:{}".format(*closed.getsockname())
    began = time.monotonic()
    assert address in conformance("-b", address, "--rows", "J1", code=3).err
    assert time.monotonic() - began < 8


def test_rows_that_nothing_shows(server: KohortServer) -> None:
    ran = conformance("-b", server.bootstrap_servers, "--rows", "AU1", code=4)
    assert "1 not shown" in ran.out
