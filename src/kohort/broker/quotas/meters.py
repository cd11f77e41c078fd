"""What clients have used of each broker, as far as a quota is about it. Soft state: a restart forgets it, as in Kafka.

Clients that match the same entity by the same names share a meter; where the entity is a default, each client has its
own. There are at most MOST_METERS: the one that was unused for longest makes room, which is as if its client had been
silent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kohort.broker.quotas.entities import CONNECTION, REQUEST, Found, Quotas
from kohort.broker.quotas.rates import Rate, TokenBucket
from kohort.broker.turn import Millis
from kohort.config import Config

MOST_METERS = 20_000
"""Some 30 MB, if all of them are in use."""
NANOSECONDS_OF_PERCENT = 10_000_000
"""100 percent of a second are one second of the loop."""
ARRIVALS = "max.connection.creation.rate"
LONGEST_MS = 2_147_483_647

_Name = tuple[int, str, str | None, str | None]
"""Broker, key of the quota, user and client id."""


class Meters:
    def __init__(self, quotas: Quotas, config: Config) -> None:
        self.quotas = quotas
        self._samples = config.quota_window_num, config.quota_window_size_seconds * 1000
        self._burst = config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        self._rates: dict[_Name, Rate] = {}
        """The one that was used last is the last."""
        self._buckets: dict[_Name, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._rates) + len(self._buckets)

    def charge(self, key: str, broker_id: int, user: str, client: str, amount: float, now: Millis) -> Millis:
        """Add what a client has used. Returns for how long it must wait, in milliseconds; 0 if it is within its quota,
        or has none."""
        found = self.quotas.find(key, user, client)
        if found is None:
            return 0
        rate = self._rate((broker_id, key, found.user, found.client))
        rate.add(amount, now)
        return min(rate.delay_ms(found.bound, now), LONGEST_MS)

    def charge_time(self, broker_id: int, user: str, client: str, nanoseconds: int, now: Millis) -> Millis:
        """Add the time of a request. The client waits for no longer than one sample."""
        delay = self.charge(REQUEST, broker_id, user, client, nanoseconds / NANOSECONDS_OF_PERCENT, now)
        return min(delay, self._samples[1])

    def take_back(self, key: str, broker_id: int, user: str, client: str, amount: float, now: Millis) -> None:
        """It was charged, and is not used after all."""
        found = self.quotas.find(key, user, client)
        if found is not None:
            self._rate((broker_id, key, found.user, found.client)).add(-amount, now)

    def usage(self, keys: Collection[str], now: Millis) -> Iterator[tuple[str, str, str, float, Millis]]:
        """What clients use of these quotas, by broker: key, user and client id ("" for one that does not count), the
        rate, and for how long the client would have to wait now. The meters may change meanwhile."""
        for (_, key, user, client), rate in list(self._rates.items()):
            found = self.quotas.find(key, user or "", client or "") if key in keys else None
            if found is not None:
                delay = min(rate.delay_ms(found.bound, now), LONGEST_MS)
                yield key, user or "", client or "", rate.measure(now)[0], delay

    def most_at_once(self, key: str, user: str, client: str) -> int | None:
        """The largest amount that a client may use at once; None if there is no limit. Source:
        ClientQuotaManager.maxValueInQuotaWindow."""
        found = self.quotas.find(key, user, client)
        if found is None:
            return None
        count, window_ms = self._samples
        return min(int(found.bound * (count - 1) * window_ms / 1000), LONGEST_MS)

    def connected(self, broker_id: int, address: str, now: Millis) -> Millis:
        """An address has connected. Returns for how long the connection is held before it is closed; 0 if it is within
        its quota. A connection that is closed does not count. Source: ConnectionQuotas."""
        bound = self.quotas.of_address(address)
        if bound is None:
            return 0
        rate = self._rate((broker_id, CONNECTION, address, None))
        rate.add(1, now)
        delay = min(rate.delay_ms(bound, now), self._samples[1])
        if delay:
            rate.add(-1, now)
        return delay

    def arrived(self, broker_id: int, place: str, bound: float, now: Millis) -> Millis:
        """A connection has come to a broker, or to one of its listeners (`place`). Returns for how long it waits."""
        rate = self._rate((broker_id, ARRIVALS, place, None))
        rate.add(1, now)
        return min(rate.delay_ms(bound, now), self._samples[1])

    def not_arrived(self, broker_id: int, place: str, now: Millis) -> None:
        self._rate((broker_id, ARRIVALS, place, None)).add(-1, now)

    def bucket(self, key: str, broker_id: int, found: Found) -> TokenBucket:
        name = broker_id, key, found.user, found.client
        bucket = self._buckets.pop(name, None)
        if bucket is None:
            if len(self._buckets) >= MOST_METERS // 2:
                del self._buckets[next(iter(self._buckets))]
            bucket = TokenBucket(*self._burst)
        self._buckets[name] = bucket
        return bucket

    def _rate(self, name: _Name) -> Rate:
        rate = self._rates.pop(name, None)
        if rate is None:
            if len(self._rates) >= MOST_METERS // 2:
                del self._rates[next(iter(self._rates))]
            rate = Rate(*self._samples)
        self._rates[name] = rate
        return rate
