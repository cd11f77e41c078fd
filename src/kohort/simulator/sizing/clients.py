"""How real clients differ in a rebalance.

    java         first heartbeat an interval after the assignment, then an interval from each to the next and up to
                 0.1 s more, also when an answer was held; about 0.2 s from an assignment to the first record
    librdkafka   keeps its heartbeats' pace over a rebalance; joins a classic group once a second at most; a few
                 milliseconds to the first record

Both commit before they revoke partitions, and learn of new and revoked partitions between two polls. Sources: the
clients' code, and measurements (docs/performance.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from kohort.client.membership.classic import Membership, Phase, Settings
from kohort.client.membership.coordinator_requests import Millis
from kohort.wire.known_clients import JAVA, LIBRDKAFKA
from kohort.wire.schemas.api_versions import ApiVersionsRequest


@dataclass(frozen=True, slots=True)
class Client:
    software: str
    version: str
    keeps_pace: bool
    """Its heartbeats keep their pace over a rebalance; else they start again."""
    join_every_ms: Millis
    """The least time between two joins of a classic group."""
    first_record_ms: Millis
    """The time from fetching the committed offsets of new partitions to their first record."""
    positions_first: bool
    """It fetches the committed offsets of new partitions before it acknowledges them."""
    late_ms: Millis
    """The largest random delay of a classic member's heartbeat."""

    @property
    def greeting(self) -> ApiVersionsRequest:
        return ApiVersionsRequest(client_software_name=self.software, client_software_version=self.version)


CLIENTS = {
    "java": Client(JAVA, "4.1.0", False, 0, 200, False, 100),
    "librdkafka": Client(LIBRDKAFKA, "2.16.0", True, 1_000, 20, True, 0),
}


class PacedMembership(Membership):
    """The classic member of the client library with other clients' heartbeats: one interval apart. Ours sends the next
    one at once after a held answer."""

    def __init__(self, settings: Settings, client: Client, random: Random) -> None:
        super().__init__(settings)
        self._client = client
        self._random = random
        self._scatter_ms: Millis = 0
        """Delay of the next heartbeat."""
        self._paced_at: Millis | None = None
        """When the last heartbeat was sent."""

    def _alive(self, now: Millis, *, rebalancing: bool = False) -> None:
        super()._alive(now, rebalancing=rebalancing)
        late = self._random.randint(0, self._client.late_ms) + self._scatter_ms
        self._scatter_ms = 0
        self._heartbeat_at = self._requests.sent_at + self.settings.heartbeat_interval_ms + late
        if self.phase is Phase.STABLE:
            self._paced_at = self._requests.sent_at

    def _synced(self, response: Any, now: Millis) -> None:
        paced_at = self._paced_at
        super()._synced(response, now)
        if self.phase is not Phase.STABLE or self._requests.awaits_answer:
            return
        interval = self.settings.heartbeat_interval_ms
        if not self._client.keeps_pace:
            self._heartbeat_at = now + interval
        else:
            self._heartbeat_at = now if paced_at is None else max(now, paced_at + interval)

    def scatter(self) -> None:
        """Delay the next heartbeat once, by up to an interval. Members that got their assignment together heartbeat
        together at first, and drift apart over hours; this skips the hours."""
        self._scatter_ms = self._random.randrange(self.settings.heartbeat_interval_ms)
