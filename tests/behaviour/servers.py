"""The two servers, with the same settings, as processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from threading import Lock

from bench import _kafka as apache
from bench._process import program, serving, wait_until_it_answers
from lanes import USUAL as USUAL_LANE
from lanes import Lane
from peer_servers import OF_KAFKA, wait_for_the_coordinator

from kohort.conformance.play.broker import Address
from kohort.conformance.play.consumer_client import Topic
from kohort.conformance.play.raw_socket import Wire
from kohort.conformance.play.requests import OFFSETS_PARTITIONS, create_topics, wait_until_known

USUAL = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
}

START_S = 60.0

Start = Callable[[Mapping[str, str]], Address]
"""Starts a server, on its stored data, with these settings besides its own. A running server is stopped first."""


@dataclass(frozen=True)
class Pair:
    """Two running servers, with the topics that all runs share."""

    lane: Lane
    starts: Mapping[str, Start]
    addresses: dict[str, Address]
    shared: Mapping[str, Mapping[str, Topic]]
    alone: Mapping[str, Lock] = field(default_factory=lambda: {"kafka": Lock(), "kohort": Lock()})
    """For each server, a lock for restarts and for the group without a name."""

    def restart(self, server: str, settings: Mapping[str, str]) -> Address:
        self.addresses[server] = address = self.starts[server](settings)
        wait_for_the_coordinator(address)
        return address


@contextmanager
def both(
    class_path: str,
    settings: Mapping[str, str],
    topics: Mapping[str, int],
    java_options: Sequence[str] = apache.BRIEF,
    lane: Lane = USUAL_LANE,
) -> Iterator[Pair]:
    wanted = USUAL | settings
    if lane.is_gateway:
        with starting_gateway(wanted, lane) as gateway, starting_kohort(wanted, lane) as kohort:
            yield started({"kafka": gateway, "kohort": kohort}, topics, lane)
        return
    with starting_kafka(class_path, wanted | OF_KAFKA, java_options) as kafka, starting_kohort(wanted, lane) as kohort:
        yield started({"kafka": kafka, "kohort": kohort}, topics, lane)


def started(starts: Mapping[str, Start], topics: Mapping[str, int], lane: Lane = USUAL_LANE) -> Pair:
    pair = Pair(lane, starts, {}, {})
    addresses = {name: pair.restart(name, {}) for name in starts}
    return replace(pair, shared={name: created(address, topics) for name, address in addresses.items()})


@contextmanager
def starting_kafka(class_path: str, settings: Mapping[str, str], java_options: Sequence[str]) -> Iterator[Start]:
    node = apache.Node(class_path, settings, java_options=java_options)

    def start(added: Mapping[str, str]) -> Address:
        node.stop()
        node.start(added)
        return node.address

    try:
        yield start
        node.stop()
    finally:
        node.remove()


@contextmanager
def starting_kohort(settings: Mapping[str, str], lane: Lane = USUAL_LANE) -> Iterator[Start]:
    with TemporaryDirectory() as data, ExitStack() as running:

        def start(added: Mapping[str, str]) -> Address:
            running.close()
            wanted = [f"{name}={value}" for name, value in {**settings, **lane.settings, **added}.items()]
            _, address = running.enter_context(serving(*wanted, data=data))
            return address

        yield start


@contextmanager
def starting_gateway(settings: Mapping[str, str], lane: Lane = USUAL_LANE) -> Iterator[Start]:
    """A gateway before a kohort of its own, which keeps running."""
    with TemporaryDirectory() as data, serving() as (_, (host, port)), ExitStack() as running:
        where = ["--upstream", f"{host}:{port}", "--data-dir", data, "--listen", "127.0.0.1:0"]

        def start(added: Mapping[str, str]) -> Address:
            running.close()
            wanted = {**settings, **lane.settings, **added, "log.format": "logfmt"}
            flags = [flag for name, value in wanted.items() for flag in ("--set", f"{name}={value}")]
            command = [sys.executable, "-m", "kohort", "gateway", *where, *flags]
            _, address = running.enter_context(program(command, r"kohort is ready.* listeners=([^ :]+):(\d+) "))
            wait_until_it_answers(address, START_S)
            return address

        yield start


def created(address: Address, topics: Mapping[str, int]) -> dict[str, Topic]:
    wire = Wire(address, "operator")
    ids = create_topics(wire.call, topics)
    made = {name: Topic(topic_id, name, topics[name]) for name, topic_id in ids.items()}
    wanted = {(spec.topic_id, index) for spec in made.values() for index in range(spec.partitions)}
    wait_until_known(wire.call, "probe.", tuple(made), wanted)
    wire.close()
    return made
