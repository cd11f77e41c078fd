"""A member of a share group, with confluent-kafka's ShareConsumer: it takes records and acknowledges each one.

Started by `crash_queues.py`. The argument is a JSON object. Each line that it prints is a JSON array: `["try", places]`
before it accepts or rejects records for good, `["done", places]` after the broker has said that it has, and
`["failed", name]`. A place is a partition and an offset. The process ends with its stdin.

What took nearly as long as a lock is not "done": the broker says nothing wrong about an acknowledgement that comes too
late for a record that another member has finished, if everything before this record is finished too (as in Kafka).

Of twenty records, it accepts seventeen, gives back two, and rejects one.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

COMMIT_S = 3.0
KINDS = [AcknowledgeType.ACCEPT] * 17 + [AcknowledgeType.RELEASE] * 2 + [AcknowledgeType.REJECT]
MISSING = object()
Place = tuple[int, int]


def say(what: str, about: list[Place] | str) -> None:
    sys.stdout.write(json.dumps([what, about]) + "\n")
    sys.stdout.flush()


def place_of(message: Message) -> Place:
    return message.partition(), message.offset()


def take(member: ShareConsumer, until: float) -> None:
    """`until`: what is locked now is locked until then, on the monotonic clock."""
    messages = []
    for message in member.poll(0.2):
        if (error := message.error()) is None:
            messages.append(message)
        else:
            say("failed", error.name())
    if not messages:
        return
    kinds = {place_of(message): random.choice(KINDS) for message in messages}
    finished = [place for place, kind in kinds.items() if kind != AcknowledgeType.RELEASE]
    say("try", finished)
    for message in messages:
        member.acknowledge(message, kinds[place_of(message)])
    answered = {place.partition: error for place, error in member.commit_sync(COMMIT_S).items()}
    for error in filter(None, answered.values()):
        say("failed", error.args[0].name())
    if time.monotonic() > until:
        say("failed", "late")
        return
    say("done", [place for place in finished if answered.get(place[0], MISSING) is None])


@contextmanager
def opened(options: dict[str, Any]) -> Iterator[ShareConsumer]:
    """A member. If it cannot say goodbye, its connections end, and with them its locks."""
    member = ShareConsumer(
        {
            "bootstrap.servers": options["bootstrap"],
            "group.id": options["group"],
            "client.id": options["name"],
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 50,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 300,
            "topic.metadata.refresh.interval.ms": 2_000,
        }
    )
    try:
        yield member
    finally:
        try:
            member.close()
        except KafkaException as error:
            say("failed", f"close: {error.args[0].name()}")


def run(options: dict[str, Any]) -> None:
    while True:
        with opened(options) as member:
            member.subscribe([options["topic"]])
            try:
                fetched = time.monotonic()
                while True:
                    # Records may come that were locked soon after the former poll began.
                    before, fetched = fetched, time.monotonic()
                    take(member, before + 0.9 * options["lock_s"])
            except KafkaException as error:  # the outcome of the acknowledgements is not known
                say("failed", error.args[0].name())


def guarded(options: dict[str, Any]) -> None:
    try:
        run(options)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    threading.Thread(target=guarded, args=(json.loads(sys.argv[1]),), daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
