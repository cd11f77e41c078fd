"""Consumers of the consumer protocol in this process, polled in turn by one thread: many of them cost little."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

Place = tuple[str, int]
"""A topic and a partition."""
WAIT_S = 30.0


class Member:
    """A consumer that commits each message that it reads, before it asks for the next."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], options: dict[str, Any]) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                **options,
            }
        )
        self.read: list[str] = []
        self.errors: list[KafkaError] = []
        self.slowest_commit_s = 0.0
        self.consumer.subscribe(topics)

    @property
    def assigned(self) -> set[Place]:
        return {(place.topic, place.partition) for place in self.consumer.assignment()}

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.assigned}

    def turn(self, commits: bool) -> None:
        try:
            message = self.consumer.poll(0)
        except KafkaException as error:
            self.errors.append(error.args[0])
            return
        if message is None:
            return
        if message.error() is not None:
            self.errors.append(message.error())
            return
        self.read.append(message.value().decode())
        if commits:
            self._commit(message)

    def _commit(self, message: Message) -> None:
        began = monotonic()
        try:
            self.consumer.commit(message, asynchronous=False)
        except KafkaException as error:
            self.errors.append(error.args[0])
        self.slowest_commit_s = max(self.slowest_commit_s, monotonic() - began)


class Crowd:
    """The members of a group. Statements about them hold between two of their turns."""

    def __init__(self, bootstrap: str, group: str, *topics: str, commits: bool = True) -> None:
        self._bootstrap, self._group, self._topics, self._commits = bootstrap, group, [*topics], commits
        self._members: list[Member] = []
        self.gone: list[Member] = []
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, *topics: str, **options: Any) -> Member:
        """`topics`, if other ones than the crowd's. `group_instance_id="a"` for the option group.instance.id."""
        named = {name.replace("_", "."): value for name, value in options.items()}
        member = Member(self._bootstrap, self._group, [*topics] or self._topics, named)
        with self._changed:
            self._members.append(member)
        return member

    def leave(self, *members: Member) -> None:
        for member in members:
            with self._changed:
                self._members.remove(member)
                self.gone.append(member)
            member.consumer.close()

    def _run(self) -> None:
        while not self._stopped:
            with self._changed:
                for member in self._members:
                    member.turn(self._commits)
                self._changed.notify_all()
                self._changed.wait(0.002)

    def wait(self, holds: Callable[[], bool], what: str, timeout: float = WAIT_S) -> float:
        """Returns the seconds that it took. AssertionError with the members' story if never."""
        began = monotonic()
        with self._changed:
            if not self._changed.wait_for(holds, timeout):
                story = [(sorted(m.assigned), len(m.read), [str(e) for e in m.errors[-3:]]) for m in self._members]
                raise AssertionError(f"not within {timeout} s: {what}; assigned, read, errors: {story}")
        return monotonic() - began

    def wait_shared(self, sizes: list[int], timeout: float = WAIT_S) -> float:
        """Wait until the members' partitions are disjoint and of these sizes, in any order."""

        def settled() -> bool:
            held = [member.assigned for member in self._members]
            return sorted(map(len, held)) == sorted(sizes) and len(set().union(*held)) == sum(sizes)

        return self.wait(settled, f"partitions {sizes}", timeout)

    def values(self) -> Counter[str]:
        return Counter(value for member in (*self._members, *self.gone) for value in member.read)

    def errors(self) -> list[str]:
        return [str(error) for member in (*self._members, *self.gone) for error in member.errors]

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()
        for member in self._members:
            member.consumer.close()
