"""First visits of a large group, at a real server: python tests/console/first_visits.py [--visits 40] [--members 10000]

Measures the time to the first byte, from the connection on, with a console in a process of its own that has forgotten
all answers: of the group's pages, and of other pages while the group is read; and the time to the whole page. Prints
a table for docs/how-to/console.md.
"""

from __future__ import annotations

import argparse
import http.client
import math
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path += [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "client_library")]
from bench._process import serving
from group_member import coordinator_connection

from kohort.client.cluster import Cluster
from kohort.client.wire.blocking_connection import Connection
from kohort.console.app import create_app
from kohort.console.listening import open_socket, url_of
from kohort.console.reading.refresher import Refresher
from kohort.console.serve import keep_pauses_short, serve
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

LARGE, SMALL, TOPIC = "large", "team-0", "orders"
TABS = ("partitions", "members", "rebalances", "ownership", "what_if", "settings")
OTHERS = ("/", "/topics", f"/group?id={SMALL}", "/nodes", "/topic?name=orders")
SETTINGS = (
    "group.consumer.session.timeout.ms=3600000",
    "group.consumer.max.session.timeout.ms=3600000",
    "group.consumer.max.size=20000",
    "group.heartbeat.hold.enable=false",
)
AT_ONCE = 5_000
"""Partitions that a request may create."""
PIPELINED = 200
ASK_WHOLE = {"prefer": "wait=60"}
OUTLINE, READ = b"data-outline", b'data-cell="read">read '


def serve_console(bootstrap: str) -> None:
    """A console, as `kohort console` serves it, that forgets its answers for each line of its input."""
    refresher = Refresher(lambda: Cluster(bootstrap))
    listening = open_socket("127.0.0.1", 0)
    guard: Any = create_app(lambda: Cluster(bootstrap), bootstrap, refresher)
    print(url_of(listening), flush=True)
    refresher.start()

    def forget() -> None:
        for _ in sys.stdin:
            guard._app.state.console.answers._known.clear()
            print("forgotten", flush=True)

    keep_pauses_short()
    serve(guard, listening, forget)


@contextmanager
def console_of(bootstrap: str) -> Iterator[tuple[str, int, Any]]:
    """Its address, its process id, and what makes it forget."""
    command = [sys.executable, __file__, "--console", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        url = stdout.readline().strip()

        def forget() -> None:
            stdin.write("\n")
            stdin.flush()
            assert stdout.readline() == "forgotten\n"

        yield url, process.pid, forget
        stdin.close()


def answers(connection: Connection, requests: Iterable[Any], answer_class: type[Any]) -> Iterator[Any]:
    """PIPELINED requests at a time."""
    requests = iter(requests)
    while chunk := list(islice(requests, PIPELINED)):
        for request in chunk:
            connection.send(request, timeout_ms=300_000)
        for _ in chunk:
            yield connection.receive(answer_class)


def join(bootstrap: str, members: int) -> None:
    """Members of one consumer group that share a connection, until each has a partition of its own."""
    connection = coordinator_connection(bootstrap, LARGE, "worker")
    epochs = dict.fromkeys((f"worker-{number}-{'i' * 30}" for number in range(members)), 0)
    owned: dict[str, tuple[HeartbeatTopicPartitions, ...] | None] = dict.fromkeys(epochs)

    def beat(member_id: str) -> ConsumerGroupHeartbeatRequest:
        joins = epochs[member_id] == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=LARGE,
            member_id=member_id,
            member_epoch=epochs[member_id],
            rebalance_timeout_ms=300_000 if joins else -1,
            subscribed_topic_names=(TOPIC,) if joins else None,
            topic_partitions=() if joins else owned[member_id],
        )

    for _ in range(30):
        found = answers(connection, map(beat, list(epochs)), ConsumerGroupHeartbeatResponse)
        for member_id, answer in zip(list(epochs), found, strict=True):
            assert answer.error_code == 0, answer
            epochs[member_id] = answer.member_epoch
            if answer.assignment is not None:
                owned[member_id] = tuple(
                    HeartbeatTopicPartitions(topic_id=row.topic_id, partitions=row.partitions)
                    for row in answer.assignment.topic_partitions
                )
        if all(owned.values()) and len(set(epochs.values())) == 1:
            return
    raise AssertionError(f"{sum(map(bool, owned.values()))} of {members} members have partitions")


def prepare(bootstrap: str, members: int, groups: int) -> None:
    with Cluster(bootstrap) as cluster:
        for count in range(0, members, AT_ONCE):
            more = min(count + AT_ONCE, members)
            cluster.create_partitions(TOPIC, more) if count else cluster.create_topic(TOPIC, more)
        cluster.create_topic("invoices", 4)
        for first in range(0, members, 1_000):
            places = {(TOPIC, index): 0 for index in range(first, min(first + 1_000, members))}
            cluster.commit(LARGE, places)
    commits = (
        OffsetCommitRequest(
            group_id=f"team-{number}",
            topics=(
                OffsetCommitRequestTopic(
                    name="invoices",
                    partitions=(
                        OffsetCommitRequestPartition(
                            partition_index=number % 4, committed_offset=0, committed_metadata=""
                        ),
                    ),
                ),
            ),
        )
        for number in range(groups)
    )
    with closing(coordinator_connection(bootstrap, SMALL, "operator")) as connection:
        for answer in answers(connection, commits, OffsetCommitResponse):
            assert answer.topics[0].partitions[0].error_code == 0, answer
    join(bootstrap, members)


def computed_ms(pid: int) -> float:
    """The processor time of all threads of a process so far."""
    found = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            found += int(file.read_text().split()[0])
    return found / 1e6


def fetch(url: str, path: str, headers: dict[str, str]) -> tuple[float, float, bytes]:
    """Milliseconds to the first byte and to the last one, and the page."""
    parts = urlsplit(url)
    began = time.perf_counter()
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        first = (time.perf_counter() - began) * 1000
        body = answer.read()
        assert answer.status == 200, body
    return first, (time.perf_counter() - began) * 1000, body


def visit(url: str, pid: int, path: str, times: dict[str, list[float]]) -> int:
    """A first visit, as a browser makes it, and other pages until the whole page is there. Returns the largest page."""
    before = computed_ms(pid)
    first, _, page = fetch(url, path, {})
    times["a page of the large group: first byte"].append(first)
    times["- processor time of the console until then"].append(computed_ms(pid) - before)
    sizes, whole = [len(page)], []

    def complete() -> None:
        _, last, page = fetch(url, path, ASK_WHOLE)
        assert OUTLINE not in page, path
        sizes.append(len(page))
        whole.append(first + last)

    waiting = threading.Thread(target=complete)
    waiting.start()
    number = 0
    while waiting.is_alive() or number == 0:
        before = computed_ms(pid)
        meanwhile, _, other = fetch(url, OTHERS[number % len(OTHERS)], {})
        times["another page meanwhile: first byte"].append(meanwhile)
        times["- processor time of the console, all threads"].append(computed_ms(pid) - before)
        sizes.append(len(other))
        number += 1
    waiting.join()
    times["a page of the large group: whole"] += whole
    return max(sizes)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def main(visits: int, members: int, groups: int, prepared: str) -> None:
    with serving(*SETTINGS) if not prepared else nullcontext((0, prepared.split(":"))) as (_, (host, port)):
        bootstrap = f"{host}:{port}"
        if not prepared:
            prepare(bootstrap, members, groups)
            print(f"prepared: {bootstrap}", flush=True)
        with console_of(bootstrap) as (url, pid, forget):
            times: dict[str, list[float]] = defaultdict(list)
            first, *_ = fetch(url, "/", {})
            print(f"the very first page: {first:.0f} ms", flush=True)
            while READ not in fetch(url, "/nodes", {})[2]:
                time.sleep(0.5)
            largest = 0
            for number in range(visits):
                forget()
                tab = TABS[number % len(TABS)]
                largest = max(largest, visit(url, pid, f"/group?id={LARGE}&tab={tab}", times))
                times[tab].append(times["a page of the large group: first byte"][-1])
    print(f"\n{members:,} members, {groups:,} groups; the largest page: {largest:,} bytes\n")
    print("| | visits | median, ms | 95 %, ms | longest, ms |\n| --- | --: | --: | --: | --: |")
    for what, values in times.items():
        numbers = (percentile(values, 0.5), percentile(values, 0.95), max(values))
        print(f"| {what} | {len(values)} | {' | '.join(f'{one:.0f}' for one in numbers)} |")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--visits", type=int, default=48)
    asked.add_argument("--members", type=int, default=10_000)
    asked.add_argument("--groups", type=int, default=15_000)
    asked.add_argument("--prepared", metavar="HOST:PORT", default="", help="a server that has these groups")
    asked.add_argument("--console", metavar="BOOTSTRAP", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.console:
        serve_console(given.console)
    else:
        main(given.visits, given.members, given.groups, given.prepared)
