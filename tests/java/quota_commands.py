"""kafka-configs for quotas: commands, and what it prints about them at Apache Kafka (quota_commands.txt).

`make test-peers` compares the file with Apache Kafka, `make peers-clients` with kohort.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import java_libraries
from run_java import java

RECORDED = Path(__file__).with_name("quota_commands.txt")
USER, APP, ADDRESS = ("--user", "quota-user"), ("--client", "quota-app"), ("--ip", "10.9.8.7")
USERS, APPS, ADDRESSES = (("--entity-type", kind) for kind in ("users", "clients", "ips"))
DEFAULT_USER, DEFAULT_APP, DEFAULT_ADDRESS = (("--user-defaults",), ("--client-defaults",), ("--ip-defaults",))
SET: tuple[tuple[Sequence[str], str], ...] = (
    (USER, "producer_byte_rate=1048576,consumer_byte_rate=2097152"),
    (USER + APP, "request_percentage=12.5,controller_mutation_rate=0.25"),
    (USER + DEFAULT_APP, "request_percentage=400"),
    (DEFAULT_USER, "producer_byte_rate=9000000000000"),
    (DEFAULT_USER + DEFAULT_APP, "consumer_byte_rate=9000000000000"),
    (APP, "producer_byte_rate=1e7"),
    (DEFAULT_APP, "controller_mutation_rate=100000"),
    (ADDRESS, "connection_creation_rate=20"),
    (("--ip", "fd00::7"), "connection_creation_rate=30"),
    (DEFAULT_ADDRESS, "connection_creation_rate=1000000"),
)
REFUSED: tuple[tuple[Sequence[str], str], ...] = (
    (USER, "producer_byte_rate=-1"),
    (USER, "consumer_byte_rate=0"),
    (USER, "producer_byte_rate=1.5"),
    (USER, "producer_byte_rate=1e30"),
    (USER, "producer_byte_rate=5,consumer_byte_rate=-5"),
    (USER, "producer_byte_rate=many"),
    (USER, "speed=1"),
    (USER, "connection_creation_rate=1"),
    (ADDRESS, "connection_creation_rate=1.5"),
    (ADDRESS, "connection_creation_rate=-3"),
    (ADDRESS, "connection_creation_rate=3000000000"),
    (ADDRESS, "producer_byte_rate=1"),
    (("--ip", "no.host.invalid"), "connection_creation_rate=1"),
)
DESCRIBED: tuple[Sequence[str], ...] = (
    *(USER, DEFAULT_USER, USERS, USER + APP, USER + DEFAULT_APP, (*USERS, "--entity-name", USER[1], *APPS)),
    *(USERS + APPS, APP, DEFAULT_APP, APPS, ADDRESS, DEFAULT_ADDRESS, ADDRESSES),
    ("--ip", "10.0.0.99"),
)


def _names(changes: str) -> str:
    return ",".join(change.partition("=")[0] for change in changes.split(","))


COMMANDS: tuple[Sequence[str], ...] = (
    *(("--alter", *entity, "--add-config", values) for entity, values in SET),
    *(("--describe", *entity) for entity in DESCRIBED),
    *(("--alter", *entity, "--add-config", values) for entity, values in REFUSED),
    ("--alter", *APP, "--delete-config", "consumer_byte_rate"),
    ("--alter", *USER, "--add-config", "request_percentage=7", "--delete-config", "consumer_byte_rate"),
    ("--describe", *USER),
    *(("--alter", *entity, "--delete-config", _names(values)) for entity, values in SET if entity is not USER),
    ("--alter", *USER, "--delete-config", "producer_byte_rate,request_percentage"),
    *(("--describe", *kind) for kind in (USERS, USERS + APPS, APPS, ADDRESSES)),
)
"""At the end there are no quotas any more."""


def run(*at: str) -> str:
    """The commands and what they print; `at` are the arguments that name a server."""
    feed = "".join("\t".join((*at, *command)) + "\n" for command in COMMANDS)
    programs, _, _ = java_libraries.clients().partition(":")
    output = java(f"{programs}:{java_libraries.kafka()}", "Commands", "kafka.admin.ConfigCommand", feed=feed)
    runs = re.split(r"^exit (\d+)\n", output, flags=re.MULTILINE)
    assert len(runs) == 2 * len(COMMANDS) + 1, output
    lines: list[str] = []
    for command, printed, code in zip(COMMANDS, runs[::2], runs[1::2], strict=False):
        lines += (
            f"$ kafka-configs {' '.join(command)}",
            *_kept(printed, at),
            *([f"exit {code}"] if code != "0" else []),
            "",
        )
    return "\n".join(lines)


def _kept(printed: str, at: Sequence[str]) -> Iterator[str]:
    """Without stacks, which have line numbers, and without users' passwords, which Apache Kafka has none of here."""
    for line in printed.splitlines():
        if not line.startswith(("\tat ", "\t...", "SCRAM credential")):
            yield line.replace(" ".join(at) + " ", "")
