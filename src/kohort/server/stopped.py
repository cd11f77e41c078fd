"""One request to the broker of a stopped data directory, as an administrator on the machine makes it.

The directory is locked meanwhile, as by a server. The broker decides the request as it would while it runs, and the
outcome is durable when the call returns.
"""

from __future__ import annotations

import random
import time
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.nodes import Endpoint
from kohort.broker.turn import ConnectionId, Frame, Opened, Send
from kohort.config import Config
from kohort.server.server import open_storage
from kohort.storage.protocol import Storage
from kohort.wire.codec import decode, encode_request
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of


def ask_stopped(config: Config, request: Any, response: type, version: int) -> Any:
    """Raises StorageError, WrongDirectory."""
    failures: list[Exception] = []
    storage = open_storage(config, failures.append)
    try:
        lease = storage.acquire()
        broker = broker_without_server(config, storage).load()
        now = broker.state.now
        connection = ConnectionId(1)
        frame = Frame(connection, encode_request(request, version, 1, "kohort-cli")[4:])
        arrived: list[Opened | Frame] = [Opened(connection, config.broker_id, "localhost"), frame]
        answer = b""
        while not answer:
            turn = broker.step(arrived, now)
            storage.commit(turn.operations, lease)
            answer = b"".join(release.whole for release in turn.releases if isinstance(release, Send))
            arrived = []
        return _decoded(answer[4:], request, response, version)
    finally:
        storage.close()


def broker_without_server(config: Config, storage: Storage) -> Broker:
    """It is not loaded."""
    now = time.time_ns() // 1_000_000
    endpoints = [Endpoint("localhost", 9092) for _ in range(config.brokers)]
    return Broker(config, storage, now=now, random=random.Random(), endpoints=endpoints)


def _decoded(frame: bytes, request: Any, response: type, version: int) -> Any:
    schema = schema_of(type(request))
    assert schema.api_key is not None
    _, start = read_response_header(frame, flexible=version in schema.flexible, api_key=schema.api_key)
    return decode(response, version, frame, start)
