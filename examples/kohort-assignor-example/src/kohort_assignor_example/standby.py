"""Some members stand by: they get a topic's partitions only if no other subscriber of the topic is there.

The remaining members form an ordinary group, which one of kohort's assignors divides. Most custom assignors can be
written in this way: decide which members may get a topic, and let an even, sticky assignor divide it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kohort.coordinator.assignors.spec import Assignment, GroupSpec, MemberSpec
from kohort.coordinator.assignors.uniform import UniformAssignor


@dataclass(frozen=True, slots=True)
class StandbyAssignor:
    name: str = "standby"
    suffix: str = "-standby"

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        active = [member for member in group.members.values() if not self._stands_by(member)]
        served = {topic_id for member in active for topic_id in member.topics}
        members = {
            member_id: replace(member, topics=tuple(topic for topic in member.topics if topic not in served))
            if self._stands_by(member)
            else member
            for member_id, member in group.members.items()
        }
        return UniformAssignor().assign(GroupSpec(members, group.topics))

    def _stands_by(self, member: MemberSpec) -> bool:
        return (member.instance_id or "").endswith(self.suffix)
