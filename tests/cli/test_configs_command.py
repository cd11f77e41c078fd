"""`kohort configs` against a server of two brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from run_command import Kohort, Terminal

from kohort.cli.configs.resources import complete_resources
from kohort.client.admin.configs import ResourceType
from kohort.client.cluster import Cluster

CHANGED = {"log.level", "log.retention.ms", "message.max.bytes"}
"""What the tests set on brokers."""


@pytest.fixture(autouse=True)
def clean_brokers(bootstrap: str) -> Iterator[None]:
    yield
    with Cluster(bootstrap) as cluster:
        for name in ("1", "2", ""):
            cluster.alter_configs(ResourceType.BROKER, name, dict.fromkeys(CHANGED))


@pytest.fixture
def topic(kohort: Kohort, unique: str) -> str:
    kohort("topics", "create", unique, "--config", "retention.ms=7")
    return f"topic:{unique}"


def described(kohort: Kohort, resource: str, *arguments: str) -> dict[str, dict[str, Any]]:
    (found,) = json.loads(kohort("configs", "describe", resource, *arguments, "-o", "json").out)
    assert found["resource"] == resource
    return {entry.pop("name"): entry for entry in found["configs"]}


def values(kohort: Kohort, resource: str) -> dict[str, tuple[str, str]]:
    return {name: (entry["value"], entry["source"]) for name, entry in described(kohort, resource).items()}


def test_a_topic(kohort: Kohort, topic: str) -> None:
    assert kohort("configs", "describe", topic).out.splitlines() == [
        "SETTING       VALUE  SOURCE",
        "retention.ms  7      dynamic-topic",
    ]
    everything = described(kohort, topic, "--all")
    assert everything["cleanup.policy"] == {
        "value": "delete",
        "source": "default",
        "read_only": False,
        "sensitive": False,
    }
    done = kohort("configs", "set", topic, "cleanup.policy=compact", "retention.ms=7", "retention.bytes=9").out
    assert done.splitlines() == [
        f"{topic}: cleanup.policy: delete → compact",
        f"{topic}: retention.ms: 7 already",
        f"{topic}: retention.bytes: -1 → 9",
    ]
    ran = kohort("configs", "unset", topic, "retention.ms", "retention.bytes", "flush.ms", "-o", "json").out
    assert json.loads(ran)["configs"]["retention.ms"] == {"old": "7", "new": None}
    assert values(kohort, topic) == {"cleanup.policy": ("compact", "dynamic-topic")}
    kohort("configs", "unset", topic, "cleanup.policy")
    [line] = kohort("configs", "describe", topic).out.splitlines()
    assert line == f"no setting of {topic} differs from its default; --all shows the defaults"


def test_a_dry_run_changes_nothing(kohort: Kohort, topic: str) -> None:
    ran = kohort("configs", "set", topic, "retention.ms=8", "--dry-run")
    assert ran.out.splitlines() == [
        f"{topic}: retention.ms: 7 → 8",
        "nothing was changed: this is a dry run, and the cluster accepts the change",
    ]
    ran = kohort("configs", "set", topic, "retention.ms=soon", "--dry-run", code=1)
    assert "INVALID_CONFIG" in ran.err
    assert ran.err.endswith("; nothing was changed\n")
    document = json.loads(kohort("configs", "unset", topic, "retention.ms", "--dry-run", "-o", "json").out)
    assert document["dry_run"] is True
    assert values(kohort, topic) == {"retention.ms": ("7", "dynamic-topic")}
    assert kohort("configs", "set", "broker:2", "log.level=debug", "--dry-run").err == ""
    assert "log.level" not in values(kohort, "broker:2")


def test_brokers_ask_first(kohort: Kohort, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = kohort("configs", "set", "broker:2", "message.max.bytes=5000", code=2)
    assert ran.err == "kohort: nothing was changed: this is no terminal to confirm on; add --yes\n"
    assert ran.out == "broker:2: message.max.bytes: 1048588 → 5000\n"
    assert "message.max.bytes" not in values(kohort, "broker:2")
    monkeypatch.setattr("kohort.cli.confirmation.sys", Terminal)
    assert "nothing was changed" in kohort("configs", "set", "brokers", "log.level=error", stdin="n\n", code=1).err
    ran = kohort("configs", "set", "brokers", "message.max.bytes=6000", stdin="y\n")
    assert "Change 1 setting of all brokers? [y/N]" in ran.out
    assert values(kohort, "brokers") == {"message.max.bytes": ("6000", "dynamic-brokers")}
    ran = kohort("configs", "set", "broker:2", "message.max.bytes=5000", stdin="y\n")
    assert "Change 1 setting of broker 2? [y/N]" in ran.out
    assert ran.out.endswith("changed broker:2\n")
    assert values(kohort, "broker:2")["message.max.bytes"] == ("5000", "dynamic-broker")
    assert values(kohort, "broker:1")["message.max.bytes"] == ("6000", "dynamic-brokers")
    kohort("configs", "unset", "brokers", "message.max.bytes", "--yes")
    assert kohort("configs", "describe", "brokers").out == "no setting is set for all brokers\n"


def test_several_resources_and_read_only_settings(kohort: Kohort, topic: str) -> None:
    ran = kohort("configs", "describe", topic, "broker:1", "brokers", "group:nobody")
    heading, *rows = [line.split() for line in ran.out.splitlines()]
    assert heading == ["RESOURCE", "SETTING", "VALUE", "SOURCE", "READ-ONLY"]
    assert [topic, "retention.ms", "7", "dynamic-topic", "-"] in rows
    assert ["broker:1", "brokers", "2", "static", "yes"] in rows
    assert ["group:nobody", "consumer.heartbeat.interval.ms", "100", "static", "-"] in rows
    assert ran.out.endswith("\nno setting is set for all brokers\n")
    ran = kohort("configs", "describe", f"{topic}x", topic, code=1)
    assert ran.err == f"kohort: topic {topic[6:]}x does not exist; did you mean {topic[6:]}?\n"
    assert "retention.ms" in ran.out
    assert "cannot" in kohort("configs", "set", "broker:1", "brokers=3", "--yes", code=1).err.lower()


def test_a_group(kohort: Kohort, unique: str) -> None:
    kohort("configs", "set", f"group:{unique}", "consumer.session.timeout.ms=50000")
    found = values(kohort, f"group:{unique}")
    assert found["consumer.session.timeout.ms"] == ("50000", "dynamic-group")
    assert {source for name, (_, source) in found.items() if name != "consumer.session.timeout.ms"} == {"static"}


def test_secrets_are_never_printed(kohort: Kohort, tmp_path: Path) -> None:
    """The server refuses these, because no listener has TLS; its text does not have the value either."""
    name = "listener.name.plaintext.ssl.keystore.password"
    file = tmp_path / "secret.properties"
    file.write_text(f"{name}=hunter2\n")
    for arguments in ((f"{name}=hunter2",), ("--file", str(file))):
        for more in ((), ("--dry-run",), ("-o", "json")):
            ran = kohort("configs", "set", "broker:1", *arguments, "--yes", *more, code=1)
            assert "hunter2" not in ran.out + ran.err
            assert "nothing was changed" in ran.err
    assert kohort("configs", "describe", "broker:1", "--all").out.count("(hidden)") > 3
    entry = described(kohort, "broker:1", "--all")["ssl.key.password"]
    assert (entry["value"], entry["sensitive"]) == (None, True)


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        ("describe topics:orders", 2, "'topics:orders' is no resource; did you mean topic:orders?"),
        ("describe brokers:1", 2, "'brokers:1' is no resource; did you mean broker:1?"),
        ("describe orders", 2, "'orders' is no resource; did you mean topic:orders, or brokers?"),
        ("describe payments", 2, "'payments' is no resource; did you mean topic:payments?"),
        ("describe topic", 2, "'topic' is no resource; did you mean topic:NAME?"),
        ("describe xyz:1", 2, "it takes topic:NAME, broker:ID, brokers"),
        ("describe broker:one", 2, "brokers are named by their ids, as broker:1"),
        ("describe broker:9", 1, "there is no broker 9; the cluster has 1, 2"),
        ("set broker:9 log.level=info -y", 1, "there is no broker 9; the cluster has 1, 2; nothing was changed"),
        ("describe client-metrics:a", 1, "There are no configs of resource type 16"),
        ("set group:g consumer.sesion.timeout.ms=50000", 1, "did you mean consumer.session.timeout.ms?"),
        ("set brokers log.retention.mss=1 -y", 1, "did you mean log.retention.ms? nothing was changed"),
        ("unset group:g consumer.sesion.timeout.ms", 1, "did you mean consumer.session.timeout.ms?"),
        ("set group:g retention", 2, "'retention' is not NAME=VALUE"),
        ("set group:g a=1 a=2", 2, "a setting is given twice"),
        ("set group:g", 2, "nothing to change: add NAME=VALUE"),
        ("unset group:g a=1", 2, "`kohort configs set` takes values"),
        ("set group:g --file /absent/file", 2, "cannot read /absent/file"),
    ],
)
def test_what_is_refused(kohort: Kohort, arguments: str, code: int, why: str) -> None:
    assert why in " ".join(kohort("configs", *arguments.split(), code=code).err.split())


def test_a_cluster_that_is_not_there(kohort: Kohort) -> None:
    assert "check --bootstrap-server" in kohort("configs", "describe", "brokers", "-b", "127.0.0.1:1", code=3).err


def test_completion(bootstrap: str, written: str) -> None:
    class Context:
        params: ClassVar[dict[str, str]] = {"bootstrap_server": bootstrap}

    def complete(incomplete: str) -> list[str]:
        return complete_resources(Context(), incomplete)  # type: ignore[arg-type]

    assert complete("b") == ["broker:", "brokers", "broker-logger:"]
    assert f"topic:{written}" in complete(f"topic:{written[:-1]}")
    assert complete("broker:1") == []
