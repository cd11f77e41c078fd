"""A connection to a broker, blocking or on an event loop, behind one interface: a test runs with each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kohort.client.wire.async_connection import AsyncConnection
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.schemas.list_groups import ListGroupsRequest, ListGroupsResponse


class Blocking:
    def __init__(self, address: Any, **options: Any) -> None:
        self.connection: Connection | AsyncConnection = Connection(address.host, address.port, **options)

    def request(self, request: Any = ListGroupsRequest(), response: type[Any] = ListGroupsResponse) -> Any:
        return self.connection.request(request, response)  # type: ignore[union-attr]

    def close(self) -> None:
        self.connection.close()


class OnLoop:
    """The loop runs only inside the calls."""

    def __init__(self, address: Any, loop_factory: Callable[[], Any] | None = None, **options: Any) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory)
        try:
            self.connection = self._runner.run(AsyncConnection.open(address.host, address.port, **options))
        except BaseException:
            self._runner.close()
            raise

    def request(self, request: Any = ListGroupsRequest(), response: type[Any] = ListGroupsResponse) -> Any:
        async def ask() -> Any:
            return await asyncio.wait_for(self.connection.ask(request, response), 10)

        return self._runner.run(ask())

    def close(self) -> None:
        self._runner.get_loop().call_soon(self.connection.close)
        self._runner.run(asyncio.sleep(0))
        self._runner.close()


Opened = Blocking | OnLoop
Connect = Callable[..., Opened]
