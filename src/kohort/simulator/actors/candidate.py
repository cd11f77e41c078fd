"""A simulated candidate for leadership: `client/coordination/election.py` in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.client.coordination.election import NO_CLAIM, PROTOCOL, elect
from kohort.simulator.actors.library_user import LibraryUser
from kohort.wire.schemas.join_group import JoinGroupResponseMember

LEADERSHIP = "leadership"


class Candidate(LibraryUser):
    protocol_type = "kohort-election"
    token: int | None = None

    @property
    def leads(self) -> bool:
        return self.token is not None and self.lease_lasts

    def holds(self, thing: str) -> bool:
        return self.leads

    def metadata(self) -> Mapping[str, bytes]:
        claim = self.token if self.leads and self.token is not None else NO_CLAIM
        return {PROTOCOL: claim.to_bytes(8, "big", signed=True)}

    def divide(self, members: Sequence[JoinGroupResponseMember]) -> Mapping[str, bytes]:
        return elect({member.member_id: bytes(member.metadata) for member in members})

    def joined(self, generation: int, assignment: bytes) -> None:
        if assignment.decode() != self.membership.member_id:
            self.stop_watching()
            self.token = None
        elif not self.leads:
            self.token = generation
            if self.lease_lasts:
                self.tell(f"leads, token {generation}")
                self.holders.begins(self, LEADERSHIP, generation)
            self.watch_lease()

    def lapse(self) -> None:
        self.token = None

    def forget(self) -> None:
        self.token = None
