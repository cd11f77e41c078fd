"""How many jobs a whole group works on at a time: permits, which the workers share among themselves.

There are as many permits as jobs may be worked on. They are items of a sharding (client/coordination/sharding.py) in a
group of its own, so each permit has one worker at a time, on any Kafka cluster. A worker works on as many jobs as it
has permits. It gives a permit up when a job has ended, if it uses them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kohort.client.coordination.sharding import Shard, shards
from kohort.client.queue.options import Settings

SESSION_TIMEOUT_MS = 10_000


class Permits:
    """The share of one worker. `changed` is called when there are more; `used` says how many jobs are worked on."""

    def __init__(
        self,
        settings: Settings,
        bootstrap_servers: str | Sequence[str],
        changed: Callable[[], None],
        used: Callable[[], int],
    ) -> None:
        most = settings.options["group_concurrency"]
        assert most is not None
        self._names = [f"permit-{number}" for number in range(most)]
        self._settings = settings
        self._bootstrap = bootstrap_servers
        self._changed = changed
        self._used = used
        self._held: set[Shard] = set()
        """The permits of this worker, used or not."""
        self._leaving = 0
        """How many permits the group has asked back that jobs still use."""
        self._freed = asyncio.Event()

    def count(self) -> int:
        """How many jobs may be worked on now."""
        return sum(1 for shard in self._held if shard.valid)

    def job_ended(self) -> None:
        """A permit is not used any more."""
        self._freed.set()

    async def run(self) -> None:
        """Take part until cancelled. Raises KafkaError."""
        options = self._settings.options
        async with shards(
            self._bootstrap,
            f"{self._settings.group_id}.permits",
            self._names,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            client_id=options["client_id"],
            security=self._settings.security,
        ) as sharding:
            await sharding.run(self._hold)

    async def _hold(self, shard: Shard) -> None:
        self._held.add(shard)
        self._changed()
        try:
            await asyncio.Event().wait()
        finally:
            self._held.discard(shard)
            self._leaving += 1
            try:
                while self._used() > len(self._held) + self._leaving - 1:
                    self._freed.clear()
                    await self._freed.wait()
            finally:
                self._leaving -= 1
