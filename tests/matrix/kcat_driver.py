"""kcat, for python_driver.py: each command runs a kcat of its own.

kcat prints a member's partitions to standard error, one line per rebalance: "% Group g rebalanced (memberid m):
assigned: t [0], t [1]"; with a cooperative assignor, the added or revoked partitions: "% Group g rebalanced:
incremental revoke of 3 partition(s) (memberid m, COOPERATIVE rebalance protocol): t [0], …".
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import Any

from worker import say

WHOLE = re.compile(r"rebalanced \(.*?\): (assigned|revoked)(.*)")
PART = re.compile(r"rebalanced: incremental (assignment|revoke) .*? protocol\): (.*)")
PLACE = re.compile(r"\[(\d+)\]")
FORMAT = "%p %o %k %s\\n"
ENOUGH_S = 50
Record = tuple[int, bytes, bytes]
"""Partition, key and value."""


class Kcat:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"Version (\S+) .*librdkafka ([\w.]+)", said, re.DOTALL)
        assert found is not None, said
        self.version = f"{found[1]}, librdkafka {found[2]}"

    def _run(self, *words: str, feed: str = "") -> str:
        done = subprocess.run(
            ["kcat", "-b", self._bootstrap, *words], input=feed, capture_output=True, text=True, timeout=ENOUGH_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def produce(self, topic: str, records: list[Record], codec: str, idempotent: bool) -> None:
        settings = ["-E", "-z", codec, "-H", "h=x", "-X", f"enable.idempotence={str(idempotent).lower()}"]
        for partition in sorted({partition for partition, _, _ in records}):
            feed = b"".join(b"%b:%b\n" % (key, value) for of, key, value in records if of == partition).decode()
            self._run("-P", "-t", topic, "-p", str(partition), "-K", ":", *settings, feed=feed)

    def read(self, topic: str, partitions: int, count: int, isolation: str) -> Any:
        level = ("-X", f"isolation.level={isolation}")
        out = self._run("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", FORMAT, *level)
        words = [line.split(" ") for line in out.splitlines()]
        return {"records": [[int(p), int(o), key, value] for p, o, key, value in words]}


def member(options: dict[str, Any]) -> None:
    settings = {
        "client.id": options["name"],
        "auto.offset.reset": "earliest",
        "session.timeout.ms": options["session_timeout_ms"],
        "heartbeat.interval.ms": options["heartbeat_interval_ms"],
        "partition.assignment.strategy": "cooperative-sticky" if options["cooperative"] else "range",
        "auto.commit.interval.ms": 200,
        "topic.metadata.refresh.interval.ms": 1000,
        **({"group.instance.id": options["instance"]} if options["instance"] else {}),
    }
    words = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    command = ["kcat", "-b", options["bootstrap"], "-G", options["group"], *words, "-u", "-f", FORMAT, options["topic"]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
    readers = [threading.Thread(target=tell, args=(process,)) for tell in (_tell_records, _tell_assignments)]
    for reader in readers:
        reader.start()
    for line in sys.stdin:
        if line.strip() == "close":
            break
    process.terminate()
    process.wait(20)
    for reader in readers:
        reader.join(10)
    say(closed=True)


def _tell_records(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        partition, offset, _, value = line.rstrip("\n").split(" ")
        say(records=[[int(partition), int(offset), value]])


def _tell_assignments(process: subprocess.Popen[str]) -> None:
    held: set[int] = set()
    assert process.stderr is not None
    for line in process.stderr:
        if whole := WHOLE.search(line):
            held = _places(whole[2]) if whole[1] == "assigned" else set()
        elif part := PART.search(line):
            held = held | _places(part[2]) if part[1] == "assignment" else held - _places(part[2])
        else:
            continue
        say(assigned=sorted(held))


def _places(text: str) -> set[int]:
    return {int(place) for place in PLACE.findall(text)}
