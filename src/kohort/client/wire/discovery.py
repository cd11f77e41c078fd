"""Where a group's coordinator is, for asyncio.

It asks the known brokers in random order, and then the bootstrap servers. The broker that answers names the
other brokers, so that a member goes on when the bootstrap servers are gone.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from kohort.client.backoff import Backoff
from kohort.client.errors import ConnectionFailed, KafkaError, TimedOut, Unreachable, check
from kohort.client.security.security import Security
from kohort.client.wire.async_connection import AsyncConnection
from kohort.client.wire.exchange import PLAINTEXT
from kohort.client.wire.routing import coordinator_request, parse_addresses
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataResponse

Address = tuple[str, int]

log = logging.getLogger("kohort.client")


async def _sleep(pause_ms: float) -> bool:
    await asyncio.sleep(pause_ms / 1000)
    return True


class Discovery:
    """Finds coordinators by way of any broker. Raises ValueError for a bad `bootstrap_servers`."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str,
        connect_timeout_ms: int,
        request_timeout_ms: int,
        security: Security = PLAINTEXT,
    ) -> None:
        self.reached = False
        """True if any broker has ever answered. A cluster that never did is most often a wrong address."""
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._security = security
        self._brokers: tuple[Address, ...] = ()

    async def open(self, address: Address) -> AsyncConnection:
        """A connection to a broker. Raises ConnectionFailed, AuthenticationFailed."""
        return await AsyncConnection.open(
            *address,
            client_id=self._client_id,
            connect_timeout_ms=self._connect_timeout_ms,
            security=self._security,
        )

    async def coordinator(self, group_id: str) -> Address:
        """The broker that coordinates a group; one attempt. Raises KafkaError, some of them retriable."""
        connection = await self._any_broker()
        try:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                version = connection.exchange.version_of(FindCoordinatorRequest)
                found = connection.ask(coordinator_request(version, group_id), FindCoordinatorResponse)
                brokers = connection.ask(MetadataRequest(topics=()), MetadataResponse)
                answer = await found
                self._brokers = tuple((broker.host, broker.port) for broker in (await brokers).brokers)
        except TimeoutError:
            raise TimedOut(f"{connection.address}: FindCoordinator was not answered in time") from None
        finally:
            connection.close()
        row = answer.coordinators[0] if answer.coordinators else answer
        check(row.error_code, f"coordinator of group {group_id}", row.error_message)
        return row.host, row.port

    async def open_coordinator(
        self,
        group_id: str,
        backoff: Backoff,
        bootstrap_timeout_ms: int,
        pause: Callable[[float], Awaitable[bool]] = _sleep,
    ) -> tuple[Address, AsyncConnection]:
        """A connection to the coordinator of a group, with as many attempts as it takes.

        A cluster that has never answered gets `bootstrap_timeout_ms`. `pause` waits for the given number of
        milliseconds between two attempts, and returns whether to go on. Raises KafkaError.
        """
        began = time.monotonic()
        attempts = 0
        while True:
            try:
                address = await self.coordinator(group_id)
                return address, await self.open(address)
            except KafkaError as error:
                attempts += 1
                pause_ms = backoff.pause(attempts, random.random())
                patient = self.reached or (time.monotonic() - began) * 1000 + pause_ms < bootstrap_timeout_ms
                if not (error.retriable and patient):
                    raise
                log.info("group %s: %s", group_id, error)
                if not await pause(pause_ms):
                    raise

    async def _any_broker(self) -> AsyncConnection:
        known = [address for address in self._brokers if address not in self._bootstrap]
        given = list(self._bootstrap)
        random.shuffle(known)
        random.shuffle(given)
        failures: list[KafkaError] = []
        for address in known + given:
            try:
                connection = await self.open(address)
            except (ConnectionFailed, TimedOut) as error:
                failures.append(error)
                continue
            self.reached = True
            return connection
        unreachable = Unreachable("cannot reach the cluster", "; ".join(failure.message for failure in failures))
        unreachable.retriable = any(failure.retriable for failure in failures)
        raise unreachable
