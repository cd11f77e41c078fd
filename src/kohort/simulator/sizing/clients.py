"""How real clients differ, as far as a rebalance is concerned.

    java         first heartbeat an interval after the assignment, then an interval from each to the next and up to
                 0.1 s more, also when an answer was held; about 0.2 s from an assignment to the first record
    librdkafka   keeps its heartbeats' pace over a rebalance; joins a classic group once a second at most; a few
                 milliseconds to the first record

Both commit what they did before they give partitions up, and learn of partitions to give up or to take between two
polls. Read in the clients' sources and measured with live ones (docs/performance.md, README.md).
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
    """Over a rebalance its heartbeats go on as they were; else they begin anew."""
    join_every_ms: Millis
    """The least time between two joins of a classic group."""
    first_record_ms: Millis
    """From the committed positions of new partitions to their first record."""
    positions_first: bool
    """It asks for the committed positions of new partitions before it acknowledges that it has them."""
    late_ms: Millis
    """A heartbeat of a classic member is up to so much late, by chance."""

    @property
    def greeting(self) -> ApiVersionsRequest:
        return ApiVersionsRequest(client_software_name=self.software, client_software_version=self.version)


CLIENTS = {
    "java": Client(JAVA, "4.1.0", False, 0, 200, False, 100),
    "librdkafka": Client(LIBRDKAFKA, "2.16.0", True, 1_000, 20, True, 0),
}


class PacedMembership(Membership):
    """The classic member of the client library with heartbeats as other clients send them: an interval from one to the
    next, where ours comes back at once when its answer was held."""

    def __init__(self, settings: Settings, client: Client, random: Random) -> None:
        super().__init__(settings)
        self._client = client
        self._random = random
        self._scatter_ms: Millis = 0
        """The next heartbeat is so much later."""
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
        """Once, its next heartbeat comes at any moment of the interval after it is due: members that got their
        assignment together beat together at first, and drift apart in hours."""
        self._scatter_ms = self._random.randrange(self.settings.heartbeat_interval_ms)
