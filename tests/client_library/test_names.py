"""What programs import from `kohort.client`, and how it answers to names that it does not know."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from recording_coordinator import BlockingRecording, Recording

from kohort import client
from kohort.client import BlockingGroupConsumer, GroupConsumer, Misuse, errors, run_program

DOCS = Path(__file__).parents[2] / "docs"


def test_every_exported_name_exists() -> None:
    for name in client.__all__:
        assert getattr(client, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Leader'"):
        _ = client.Leader  # type: ignore[attr-defined]


def test_the_reference_has_every_exported_name() -> None:
    page = (DOCS / "reference" / "client.md").read_text(encoding="utf-8")
    named = set(re.findall(r"::: kohort\.client\.(\w+)\n", page)) | set(re.findall(r"`(\w+)`", page))
    assert set(client.__all__) - named == set()


def test_exceptions_are_imported_from_the_package() -> None:
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, Exception):
            assert getattr(client, name) is value


@pytest.mark.parametrize("kind", [GroupConsumer, BlockingGroupConsumer, Recording, BlockingRecording])
def test_an_unknown_setting(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"unknown setting session_timeout; did you mean session_timeout_ms\?"):
        kind("localhost:1", "g", session_timeout=1)


@pytest.mark.parametrize("kind", [GroupConsumer, BlockingGroupConsumer, Recording, BlockingRecording])
def test_heartbeats_follow_from_the_session(kind: Any) -> None:
    kind("localhost:1", "g", session_timeout_ms=3_000)
    with pytest.raises(ValueError, match="heartbeat_interval_ms is 3000 and session_timeout_ms is 3000"):
        kind("localhost:1", "g", session_timeout_ms=3_000, heartbeat_interval_ms=3_000)


def test_a_program_ends_cleanly_on_sigterm() -> None:
    ended: list[str] = []

    async def main() -> str:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("left")
        return "never"

    def handler(*_: Any) -> None:
        pass

    former = signal.signal(signal.SIGTERM, handler)
    try:
        assert run_program(main()) is None
        assert ended == ["left"]
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, former)


def test_a_program_returns_and_raises() -> None:
    async def returns() -> int:
        return 7

    async def fails() -> None:
        raise LookupError

    assert run_program(returns()) == 7
    with pytest.raises(LookupError):
        run_program(fails())
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            run_program(returns())
        except Misuse as misuse:
            raised.append(misuse)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(raised) == 1
