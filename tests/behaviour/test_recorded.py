"""What Apache Kafka answered to scenarios, in the recording, has the course of a strict coordinator in this process.

A run in real time may be late, or wait for an answer that Kafka does not give, and then a session ends: the recording
would be of another story, and a run against any server that is late in the same way would agree with it.
"""

from __future__ import annotations

import json
import re

import pytest
import scenario_files as files
from guide import Guide
from lanes import STRICT

from kohort.conformance.files import SCENARIOS, commands_of
from kohort.conformance.reference import ANSWERS
from kohort.coordinator.events import Reply

OF_MEMBERS = ("JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat")
NOT_FOR_CLIENTS = {"sync_half_null": "its SyncGroup has a member id that a parked client does not have"}
RECORDED = [
    path.stem
    for path in sorted(ANSWERS.glob("*.json"))
    if path.stem not in NOT_FOR_CLIENTS and not files.known(STRICT).get(path.stem, files.NOTHING).ids
]


class Course(Guide):
    """The errors of answers to members."""

    def __init__(self) -> None:
        super().__init__(lane=STRICT)
        self.errors: list[tuple[str, str, int]] = []

    def _reply(self, reply: Reply) -> None:
        who, api, _ = self.asked[reply.request_id]
        if api in OF_MEMBERS:
            self.errors.append((who.name, api, int(getattr(reply.body, "error_code", 0))))
        super()._reply(reply)


@pytest.mark.parametrize("name", RECORDED)
def test_the_course_is_that_of_the_coordinator(name: str) -> None:
    course = Course()
    for command in commands_of(SCENARIOS / f"{name}.txt"):
        course.play(command)
    answers = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))["answers"]
    pattern = re.compile(rf"(\S+) ({'|'.join(OF_MEMBERS)})\b(?: error=(-?\d+))?")
    found = [match for lines in answers for match in map(pattern.match, lines) if match]
    assert sorted((match[1], match[2], int(match[3] or 0)) for match in found) == sorted(course.errors)
