"""A data directory with something of everything, and its backup; for tests of backups."""

from __future__ import annotations

from pathlib import Path

from group_driver import commit, consumer_join, stable
from transaction_driver import Transactional
from wire_driver import Connection, Wire

from kohort.server.backups.backup import BackedUp, back_up
from kohort.storage.sqlite import SqliteStorage
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest

CONFIG = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}


def server_on(directory: Path, **settings: int) -> Wire:
    """A broker that uses the directory; `wire.storage.close()` ends it as a crash would."""
    return Wire(SqliteStorage(directory), **CONFIG, **settings)


class World:
    """A broker whose data has topics, records, groups of both protocols, and transactions: committed, aborted, open."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.wire = server_on(directory)
        client = self.wire.connect()
        self.topic_id = client.create_topic("t", 2)
        client.create_topic("gone", 1)
        for n in range(20):
            client.produce("t", f"value-{n} " * (500 if n == 7 else 2), partition=n % 2)
        self.member = stable(client)
        generation = {"member_id": self.member.member_id, "generation_id_or_member_epoch": self.member.generation_id}
        assert commit(client, 5, **generation) == 0
        assert commit(client, 3, group="simple") == 0
        self.consumer_epoch = int(self.wire.connect().ask(consumer_join("m", group="c"), 1).member_epoch)
        self.done = self.transaction("done")
        self.done.commit()
        self.transaction("undone").abort()
        self.open = self.transaction("open")

    def transaction(self, name: str) -> Transactional:
        """A producer with an open transaction."""
        producer = Transactional(self.wire.connect(), name)
        producer.init()
        assert producer.produce(f"of {name}", topic="t") == 0
        assert producer.commit_offsets(7, group=f"group-of-{name}") == 0
        return producer


def backup_of(directory: Path, target: Path) -> BackedUp:
    return back_up(directory, target, force=False, max_wal_bytes=1 << 30, stopped=lambda: False, told=lambda line: None)


def producer_id(client: Connection) -> int:
    """A new one."""
    answer = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    assert answer.error_code == 0
    return int(answer.producer_id)
