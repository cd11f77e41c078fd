"""Fetches in the name of members of a consumer group: owned and lost partitions, at new and old epochs.

It plays a consumer's application that may have paused for long: it continues as members that have left, and with
partitions that others own by now. Most of its fetches find no data and wait. A zombie also commits.
"""

from __future__ import annotations

from typing import Any

from kohort.client.membership.epoch_member import TopicIdPartition
from kohort.simulator.actors.consumer import OFFSETS_VERSION
from kohort.simulator.actors.offsets import commit_request
from kohort.simulator.actors.workload import Asking
from kohort.simulator.world.network import Link
from kohort.wire.schemas.fetch import FetchingMember, FetchPartition, FetchRequest, FetchTopic

FETCH_VERSION = 16


class Reader(Asking):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._known: dict[str, int] = {}
        """Members that the reader has seen, the latest last, with their epochs."""
        self._places: dict[TopicIdPartition, None] = {}
        """Partitions that the reader has seen with an owner."""

    def act(self, link: Link) -> None:
        self._look_around()
        if not self._known or not self._places:
            return
        member_id = self.random.choice([*self._known][-6:])
        epoch = self._known[member_id] + self.random.choice((0, 0, 0, 0, -1, 1))
        places = self.random.sample(sorted(self._places), min(3, len(self._places)))
        if self.options["commits"] and self.random.random() < 0.5:
            self._commit(self.at_coordinator(link, self.options["group"]), member_id, epoch, places)
        else:
            self._fetch(link, member_id, epoch, places)

    def _fetch(self, link: Link, member_id: str, epoch: int, places: list[TopicIdPartition]) -> None:
        topics: dict[bytes, list[FetchPartition]] = {}
        for topic_id, index in places:
            asked = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=10_000)
            topics.setdefault(topic_id, []).append(asked)
        request = FetchRequest(
            max_wait_ms=self.random.choice((0, 300, 4_000)),
            min_bytes=1,
            topics=tuple(FetchTopic(topic_id=topic_id, partitions=tuple(p)) for topic_id, p in topics.items()),
            as_member=FetchingMember(group_id=self.options["group"], member_id=member_id, member_epoch=epoch),
        )
        link.ask(request, FETCH_VERSION, "read")
        if self.random.random() < 0.2:
            link.close()
            self.link = None

    def _commit(self, link: Link, member_id: str, epoch: int, places: list[TopicIdPartition]) -> None:
        offsets = {place: self.random.randrange(9) for place in places}
        link.ask(commit_request(self.options["group"], epoch, member_id, None, offsets), OFFSETS_VERSION, "committed")

    def _look_around(self) -> None:
        for consumer in self.consumers():
            membership = consumer.membership
            if consumer.group == self.options["group"] and consumer.running and membership.epoch > 0:
                if self.random.random() < 0.7:
                    self._known[membership.settings.member_id] = membership.epoch
                self._places.update(dict.fromkeys(sorted(membership.owned)))
