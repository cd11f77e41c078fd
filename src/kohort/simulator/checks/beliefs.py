"""The partitions that members of consumer groups believe to own, compared with the durable records.

| member | promise |
| --- | --- |
| a client that may use a partition | owns it durably until it revokes it, is removed or fenced |
| a client within `trusted_until` | is a member |
| every member, after the healing | uses its target, and each partition has one user |

So at no time do two members believe that they own the same partition: consumer_ledger.py checks, record by record,
that it has one durable owner. A removed member that has not learned of its removal may believe it owns partitions for
longer; the server refuses its commits. The checks run after each turn, and whenever a member takes partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from kohort.broker.broker import Broker
from kohort.client.membership.classic import Membership
from kohort.client.membership.consumer import ConsumerMembership
from kohort.simulator.checks.consumer_ledger import AWAY, Durable, Has, Partition
from kohort.simulator.plan import TOPICS
from kohort.simulator.world.world import World


class Believer(Protocol):
    """A simulated member."""

    name: str
    group: str
    running: bool

    @property
    def content(self) -> bool: ...


class BelievingConsumer(Believer, Protocol):
    """A member of a consumer group."""

    membership: ConsumerMembership

    def wants(self, topic: str) -> bool: ...


class ClassicBeliever(Believer, Protocol):
    """A member of a mixed group that uses the classic protocol."""

    membership: Membership

    @property
    def owned(self) -> Collection[tuple[str, int]]: ...


class Beliefs:
    def __init__(self, world: World, durable: Callable[[str], Durable]) -> None:
        """`durable`: the durable state of a group."""
        self.consumers: Callable[[], Sequence[BelievingConsumer]] = list
        self.classic_members: Callable[[], Sequence[ClassicBeliever]] = list
        """Members of the mixed group."""
        self.requests_come_twice = False
        """Set if requests may be duplicated: a late copy may claim partitions that its sender has revoked since."""
        self._world = world
        self._durable = durable
        self._topic_ids: dict[str, set[bytes]] = {}
        """All ids that topics of a name have had."""
        self._topics: set[str] = set()
        """The existing topics."""

    def turn_ends(self, broker: Broker) -> None:
        for consumer in self.consumers():
            self.check(consumer)
        topics = broker.state.catalog.topics.values()
        self._topics = {topic.name for topic in topics}
        for topic in topics:
            self._topic_ids.setdefault(topic.name, set()).add(topic.topic_id)
        for member in self.classic_members():
            self._check_classic(member)

    def check(self, consumer: BelievingConsumer) -> None:
        membership = consumer.membership if consumer.running else None
        if membership is None or not membership.owned:
            return
        member_id = membership.settings.member_id
        group = self._durable(consumer.group)
        until = membership.trusted_until()
        if member_id not in group.members:
            if until is not None and self._world.now < until and not self.requests_come_twice:
                text = f"{member_id} is no member, and trusts until {until}"
                raise group.broken("a member that may believe in its ownership is the owner", text)
            return
        has = group.has.get(member_id)
        if has is None or has.epoch != AWAY:
            _check_uses(group, member_id, membership.owned, has)

    def _check_classic(self, member: ClassicBeliever) -> None:
        """Check a member of the classic protocol, which revokes everything before it rejoins."""
        if not member.running or self.requests_come_twice:
            return
        group, member_id = self._durable(member.group), member.membership.member_id
        if member_id not in group.has:
            return
        once = {topic for topic, ids in self._topic_ids.items() if len(ids) == 1} & self._topics
        places = [(topic, index) for topic, index in member.owned if topic in once]
        owned = frozenset((next(iter(self._topic_ids[topic])), index) for topic, index in places)
        _check_uses(group, member_id, owned, group.has[member_id])

    # -- the end

    def unsettled(
        self,
        name: str,
        present: Sequence[BelievingConsumer],
        classic: Sequence[ClassicBeliever],
        topics: dict[str, tuple[bytes, int]],
    ) -> str:
        """Why the group has not settled after the healing; "" if it has. `topics`: ids and sizes."""
        group = self._durable(name)
        absent = [member.name for member in present if not member.content]
        absent += [member.name for member in classic if not member.content]
        if absent:
            return f"{name}: {', '.join(absent)} not settled; {group}"
        uses = {consumer.membership.settings.member_id: consumer.membership.owned for consumer in present}
        for member in classic:
            owned = ((topics[topic][0], index) for topic, index in member.owned if topic in topics)
            uses[member.membership.member_id] = frozenset(owned)
        if sorted(group.members) != sorted(uses):
            return f"{name}: has {sorted(group.members)}, alive are {sorted(uses)}"
        if not uses:
            return ""
        if group.epoch != group.target_epoch:
            return f"{name}: epoch {group.epoch}, its target is of {group.target_epoch}"
        for member_id, used in uses.items():
            has, target = group.has[member_id], group.targets.get(member_id, frozenset())
            if not has.assigned.keys() == target == used or has.epoch != group.target_epoch:
                return f"{name}: {member_id} uses {sorted(used)}, has {has}, its target is {sorted(target)}"
        wanted = {
            (topic_id, index)
            for topic, (topic_id, count) in topics.items()
            if any(consumer.wants(topic) for consumer in present) or (classic and topic in TOPICS)
            for index in range(count)
        }
        all_used = {partition for used in uses.values() for partition in used}
        return "" if all_used == wanted else f"{name}: {sorted(wanted ^ all_used)} have no owner, or one too many"


def _check_uses(group: Durable, member_id: str, uses: frozenset[Partition], has: Has | None) -> None:
    lost = uses - (has.all.keys() if has is not None else set())
    if lost:
        raise group.broken(
            "a member owns what it uses until it gives it up", f"{member_id} uses {sorted(lost)}, and has {has}"
        )
