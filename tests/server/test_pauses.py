"""A pause of the server's process is not silence of its members (docs/decisions/0012)."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack

from process import ANYWHERE, Serve
from raw_kafka import RawKafka

from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.sync_group import SyncGroupRequest

SESSION_S = 6.0
PAUSE_S = 8.0
"""Longer than a session."""
SETTINGS = ("--in-memory", *ANYWHERE, "--set", "group.initial.rebalance.delay.ms=0")


class Member:
    """The only member of a classic group, with a connection of its own."""

    def __init__(self, address: str, group: str) -> None:
        self.client = RawKafka(address)
        self.group = group
        protocols = (JoinGroupRequestProtocol(name="any", metadata=b""),)
        joined = self.client.call(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=int(SESSION_S * 1000),
                rebalance_timeout_ms=60_000,
                member_id="",
                protocol_type="any",
                protocols=protocols,
            )
        )
        assert joined.error_code == 0, joined
        self._member_id, self._generation = joined.member_id, joined.generation_id
        synced = self.client.call(
            SyncGroupRequest(group_id=group, generation_id=self._generation, member_id=self._member_id, assignments=())
        )
        assert synced.error_code == 0, synced

    @property
    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=self.group, generation_id=self._generation, member_id=self._member_id)

    def beat(self) -> ErrorCode:
        return ErrorCode(self.client.call(self.heartbeat).error_code)


def test_members_that_heartbeat_survive_a_pause_and_silent_ones_expire() -> None:
    with Serve(*SETTINGS) as serve, ExitStack() as connections:
        [address] = serve.addresses
        lively = [Member(address, f"lively{number}") for number in range(5)]
        silent = Member(address, "silent")
        for member in (*lively, silent):
            connections.enter_context(member.client)
        assert [member.beat() for member in lively] == [0] * len(lively)

        serve.process.send_signal(signal.SIGSTOP)
        ends = time.monotonic() + PAUSE_S
        sent = 0
        while time.monotonic() < ends:
            for member in lively:
                member.client.ask_later(member.heartbeat)
            sent += 1
            time.sleep(1)
        serve.process.send_signal(signal.SIGCONT)
        for member in lively:
            assert [member.client.answer().error_code for _ in range(sent)] == [0] * sent

        while state(lively[0], "silent") != "Empty":
            assert [member.beat() for member in lively] == [0] * len(lively)
            assert time.monotonic() < ends + 3 * SESSION_S, "the silent member does not expire"
            time.sleep(0.2)
        assert [state(member, member.group) for member in lively] == ["Stable"] * len(lively)
    assert any("the server was paused" in line for line in serve.lines), serve.lines


def state(asker: Member, group: str) -> str:
    [described] = asker.client.call(DescribeGroupsRequest(groups=(group,))).groups
    return str(described.group_state)
