"""An operator of a share group: it releases what a member holds, and has finished records delivered again.

Some name a topic for dead letters first, and go on asking until it is in force.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.broker.state import BrokerState
from kohort.broker.topics.topic_configs import DEAD_LETTERS_ALLOWED
from kohort.client.admin.share_groups import release_requests
from kohort.simulator.actors.operator import alter_request
from kohort.simulator.actors.workload import Asking
from kohort.simulator.plan import JOB_PARTITIONS, JOBS
from kohort.simulator.world.network import Link
from kohort.wire.schemas.alter_share_group_offsets import (
    NOT_SET,
    AlterShareGroupOffsetsRequest,
    NewOffset,
    NewOffsetsTopic,
    OffsetRange,
)
from kohort.wire.schemas.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.schemas.share_fetch import FetchPartition, FetchTopic

DEAD_JOBS = "dlq.jobs"
LOOKS_BACK = 60
"""Offsets before the end of a partition among which it chooses."""


def are_dead_letters_on(state: BrokerState, group: str) -> bool:
    """The group's dead letters can be written."""
    topic = state.catalog.topics.get(DEAD_JOBS)
    if topic is None or not state.shards or topic.configs.get(DEAD_LETTERS_ALLOWED) != "true":
        return False
    settings = state.shards[state.shard_of(group)].settings.of(group)
    return settings.errors_deadletterqueue_topic_name == DEAD_JOBS


class Overseer(Asking):
    sharing: Callable[[], list[tuple[str, str]]] = list
    """The group and the id of each member of a share group."""
    _other: Link | None = None
    """To the leader of what it released last."""

    def act(self, link: Link) -> None:
        broker, group = self.process.broker, self.options["group"]
        topic = broker.state.topic(JOBS) if broker is not None else None
        if broker is None or topic is None:
            return
        if self.options["dead_letters"] and not are_dead_letters_on(broker.state, group):
            self._ask_for_dead_letters(link)
            return
        index = self.random.randrange(JOB_PARTITIONS)
        partition = broker.state.partition(topic, index)
        if self.random.random() < 0.5:
            members = [member for of_group, member in self.sharing() if of_group == group]
            self._release(topic.topic_id, topic.partitions[index].leader, self.random.choice(members))
        elif partition is not None and partition.end_offset:
            first = max(partition.end_offset - 1 - self.random.randrange(LOOKS_BACK), 0)
            self._redeliver(self.at_coordinator(link, group), index, first, self.random.choice((1, 3, 30)))

    def _ask_for_dead_letters(self, link: Link) -> None:
        allowed = CreatableTopicConfig(name=DEAD_LETTERS_ALLOWED, value="true")
        topic = CreatableTopic(
            name=DEAD_JOBS, num_partitions=2, replication_factor=1, assignments=(), configs=(allowed,)
        )
        link.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=1_000), 7, "created")
        copies = str(self.options["copies"]).lower()
        changes = {
            "errors.deadletterqueue.topic.name": DEAD_JOBS,
            "errors.deadletterqueue.copy.record.enable": copies,
        }
        link.ask(alter_request(self.options["group"], changes), 1, "set")

    def _release(self, topic_id: bytes, leader: int, member: str) -> None:
        """Over a connection of its own, like the command line's client."""
        self.tell(f"releases what {member} holds at broker {leader}")
        self._close_other()
        link = self._other = self.connect(leader)
        everything = FetchTopic(
            topic_id=topic_id,
            partitions=tuple(FetchPartition(partition_index=index) for index in range(JOB_PARTITIONS)),
        )
        for request in release_requests(self.options["group"], member, (everything,)):
            link.ask(request, 2, "released")

    def _close_other(self) -> None:
        if self._other is not None:
            self._other.close()

    def end(self) -> None:
        self._close_other()
        super().end()

    def _redeliver(self, link: Link, index: int, first: int, count: int) -> None:
        self.tell(f"wants {count} records from {first} of {index} again")
        ranges = (OffsetRange(first_offset=first, last_offset=first + count - 1),)
        row = NewOffset(partition_index=index, start_offset=NOT_SET, redeliver=ranges)
        topic = NewOffsetsTopic(topic_name=JOBS, partitions=(row,))
        request = AlterShareGroupOffsetsRequest(group_id=self.options["group"], topics=(topic,))
        link.ask(request, 0, "redelivered")
