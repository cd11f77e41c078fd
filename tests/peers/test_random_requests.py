"""Random requests to Apache Kafka and to kohort, in step: after each the answers are the same.

A seed chooses what members do: of the consumer protocol, static ones, and classic ones beside them. The group
changes when it has settled, once, and has so many partitions that every target is even: how many partitions move to
whom is then the same whichever they are. What kohort does otherwise on purpose is left out
(docs/conformance.md): answers that were lost (N7), joins of those who have something to give up (N8), and a departure
is followed by a heartbeat before anything else changes (N13). `PEER_SEEDS=500 make test-peers` for more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import peer_servers
import pytest
from peer_stage import Address, Stage

SEEDS = range(int(os.environ.get("PEER_SEEDS", "60")))
PARTITIONS, MOST_MEMBERS, ROUNDS = 60, 6, 5
AT_A_TIME = 6


@pytest.mark.peers
@pytest.mark.timeout(600)
def test_random_requests_are_answered_alike(class_path: str) -> None:
    servers = peer_servers.kohort({}), peer_servers.kafka(class_path, {})
    with servers[0] as kohort, servers[1] as kafka, ThreadPoolExecutor(AT_A_TIME) as pool:
        found = list(pool.map(lambda seed: difference(seed, kafka, kohort), SEEDS))
    assert [text for text in found if text] == []


def difference(seed: int, kafka: Address, kohort: Address) -> str:
    """What was asked up to the first answer that differs; nothing if none does."""
    stages = Stage(kafka, f"seed{seed}"), Stage(kohort, f"seed{seed}")
    asked: list[str] = []
    try:
        for command in _Story(seed, stages[1]):
            asked.append(command)
            kafkas, kohorts = (stage.run(command) for stage in stages)
            if kafkas != kohorts:
                return "\n".join([f"seed {seed}", *asked, "kafka:", *kafkas, "kohort:", *kohorts])
    finally:
        for stage in stages:
            stage.close()
    return ""


class _Story:
    """The commands of a seed. Looks at what one of the servers told the actors, to say what is worth saying."""

    def __init__(self, seed: int, stage: Stage) -> None:
        self._random = random.Random(seed)
        self._stage = stage
        self._members: dict[str, str] = {"a": "consumer"}
        """The kind of each: consumer, static or classic."""
        self._number = 0

    def __iter__(self) -> Iterator[str]:
        yield f"topic t={PARTITIONS}"
        yield "beat a"
        for _ in range(ROUNDS):
            yield from self._change()
            for _ in range(self._random.randrange(3, 20)):
                yield from self._request()
            yield "settle"
            yield "describe"

    def _change(self) -> Iterator[str]:
        others = [name for name in self._members if name != "a"]
        if others and (len(self._members) == MOST_MEMBERS or self._random.random() < 0.4):
            yield from self._departure(self._random.choice(others))
        else:
            yield from self._arrival()

    def _arrival(self) -> Iterator[str]:
        self._number += 1
        name = f"m{self._number}"
        kind = self._members[name] = self._random.choice(("consumer", "consumer", "static", "classic"))
        if kind == "classic":
            yield f"join {name}"
            yield f"join {name}"
            yield f"sync {name}"
        else:
            yield f"beat {name}" + (f" instance=i{name}" if kind == "static" else "")

    def _departure(self, name: str) -> Iterator[str]:
        kind = self._members[name]
        if kind == "static" and self._random.random() < 0.5:
            self._number += 1
            successor = f"m{self._number}"
            yield f"away {name} instance=i{name}"
            yield f"beat {name} epoch=1"
            yield f"beat {successor} instance=i{name}"
            yield f"beat {name} epoch=1 instance=i{name}"
            yield f"leave {successor} instance=i{name}"
        elif kind == "classic":
            yield f"depart {name}"
        else:
            yield f"leave {name}" + (f" instance=i{name}" if kind == "static" else "")
        del self._members[name]
        yield "beat a"

    def _request(self) -> Iterator[str]:
        name = self._random.choice(list(self._members))
        if self._members[name] == "classic":
            yield from self._of_classic(name)
        else:
            yield from self._of_consumer(name)
        if self._random.random() < 0.15:
            yield self._random.choice(("describe", "list", "describe-classic", "fetch", "list states=Stable"))

    def _of_consumer(self, name: str) -> Iterator[str]:
        commands = [f"beat {name}", f"ack {name}", f"ack {name}", f"beat {name} epoch=+1", f"beat {name} owned=none"]
        commands += [f"beat {name} topics=t", f"ack {name} topics=t rebalance=30000", f"beat {name} instance=nobody"]
        commands += [f"commit {name} t:1 epoch=+1", f"fetch t:1 id={name}", f"fetch t:1 id={name} epoch=+1"]
        commands += [f"commit {name} t:1", f"commit {name} t:1 v=9", f"heartbeat {name}", f"sync {name}"]
        yield self._random.choice(commands)

    def _of_classic(self, name: str) -> Iterator[str]:
        commands = [f"heartbeat {name}", f"heartbeat {name}", f"heartbeat {name} epoch=+1", f"sync {name}"]
        commands += [f"sync {name} epoch=+1", f"commit {name} t:2", f"commit {name} t:2 epoch=+1", f"join {name}"]
        commands += [f"fetch t:2 id={name}", f"heartbeat {name} id=nobody", f"join {name} type=connect"]
        yield (command := self._random.choice(commands))
        if command == f"join {name}":
            yield f"sync {name}"
