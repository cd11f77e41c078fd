"""The files, played against one broker and compared with what Apache Kafka 4.3 answers.

Time is real, so a file whose answers differ is played again, with fewer files at a time, and counts as kept if one of
its plays is as Kafka: a late machine explains a difference, and chance does not explain the same answers. In these
repetitions the delay of this machine and the broker is measured; a difference after a wait counts only if nothing was
late. A file is not played if the broker does not serve what it asks for, or has other settings than it counts on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from kohort.client.errors import KafkaError
from kohort.conformance import reference
from kohort.conformance.files import SCENARIOS, SEQUENCES, headed, rows_of
from kohort.conformance.play.broker import NotServed
from kohort.conformance.play.commands import duration
from kohort.conformance.play.printing import without
from kohort.conformance.play.profiles import FACTOR, SLOWEST, Profile
from kohort.conformance.play.pulse import Pulse, pulse_of
from kohort.conformance.play.stage import Stage
from kohort.conformance.play.world import Patience, WireWorld
from kohort.conformance.reference import Expected, Lines
from kohort.conformance.target import Gone, Target
from kohort.wire.errors import ProtocolError

KEPT, DIFFERENT, NOT_SHOWN = "kept", "different", "not shown"
PARALLEL = 12
AGAIN = (4, 2)
"""How many files whose answers differ are played at a time, in each further round."""
QUICK_S = 270.0
"""A file of the quick form begins only if it can end by this time. Half a minute is left for answers that do not come,
and for the removal of groups and topics."""
QUICK_LONGEST_S = 60.0
FULL_LONGEST_S = 900.0
PATIENCE = Patience(parked=0.15, late=0.3, sweep=2.0)
CALM = Patience(parked=0.3, late=0.5, sweep=2.0, measured=True)
SPEEDS = (1, FACTOR, SLOWEST)
LATE, DRIFT = 0.4, 0.5
"""In seconds of a scenario: by how much one answer may be late, and by how much all answers together."""
LONGEST_UNWAITED_S = 5.0
"""In seconds of a scenario. One without waits that took longer was delayed: unused member ids expire after ten."""

UNSET = {
    "group.max.size": "2147483647",
    "group.consumer.max.size": "2147483647",
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
}
"""Kafka's defaults, for a broker that does not tell a setting, besides those in profiles.py."""
INTERVAL = "group.consumer.assignment.interval.ms"
OF_CONSUMERS = "group.consumer."
SIZES, MEMBERS = ("group.max.size", "group.consumer.max.size"), 10
"""Limits of groups, and a number of members that no file exceeds."""
OF_SESSIONS = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")
LIMITS = ("group.consumer.min.", "group.consumer.max.session", "group.consumer.max.heartbeat")

Say = Callable[[str], None]
FAILURES = (AssertionError, OSError, KafkaError, ProtocolError, KeyError, ValueError)
"""No answer, one that cannot be read, or one that a command cannot work with."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A command whose answer is not Kafka's."""

    file: str
    asked: str
    came: Lines
    expected: Lines
    rows: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "file": self.file,
            "asked": self.asked,
            "came": list(self.came),
            "expected": list(self.expected),
            "rows": list(self.rows),
        }


class Play(NamedTuple):
    """What came of a file. `kept` are the rows that it shows as Kafka has them, `why` says why it was not played."""

    file: str
    rows: tuple[str, ...]
    kept: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    why: str = ""
    seconds: float = 0.0
    late_s: float = 0.0
    """By how much an answer was late, if this may explain a difference; else 0.0."""

    @property
    def state(self) -> str:
        return NOT_SHOWN if self.why else DIFFERENT if self.differences else KEPT


class File(NamedTuple):
    """`takes_s`: about how long a play takes, if it has a course of its own in time."""

    name: str
    is_scenario: bool
    rows: tuple[str, ...]
    takes_s: float = 1.0


class Kit:
    """The files for one target. `quick`: leave out what takes long, and end within five minutes."""

    def __init__(
        self, target: Target, rows: Callable[[str], bool] = bool, *, quick: bool = False, parallel: int = PARALLEL
    ) -> None:
        self._target = target
        self._quick = quick
        self._parallel = parallel
        self._plays = count()
        self._began = time.monotonic()
        self._factors: dict[str, float] = {}
        self._lost: list[str] = []
        """The files that were played when the broker went."""
        self.not_played: list[Play] = []
        self.files = [file for file in self._all_files(rows) if self._can_be_played(file)]

    # -- what is played

    @staticmethod
    def _all_files(wanted: Callable[[str], bool]) -> Iterable[File]:
        for folder in (SCENARIOS, SEQUENCES):
            for name in reference.names(folder):
                rows = headed(folder / f"{name}.txt")
                if any(map(wanted, rows)):
                    yield File(name, folder == SCENARIOS, rows)

    def _can_be_played(self, file: File) -> bool:
        try:
            self._check(file)
        except NotServed as reason:
            self.not_played.append(Play(file.name, file.rows, why=str(reason)))
            return False
        return True

    def _check(self, file: File) -> None:
        if not file.is_scenario:
            needed = reference.needs(file.name)
            self._check_sizes(needed)
            return self._check_settings(needed)
        if not reference.is_recorded(file.name):
            raise NotServed(f"the answers of {reference.NAME} are not recorded")
        scenario = reference.scenario(file.name).scenario
        if any(command.startswith("restart") for command in scenario.commands):
            raise NotServed("it needs a restart of the broker")
        if scenario.is_alone and not self._target.is_free(""):
            raise NotServed("it creates the group with the empty name, and the broker has that group already")
        self._check_sizes(scenario.profile.others)
        self._factors[file.name] = factor = self._factor(scenario.profile, scenario.commands)
        limit = QUICK_LONGEST_S if self._quick else FULL_LONGEST_S
        if (takes_s := sum(scenario.hints.elapsed_ms) / 1000 * factor) > limit:
            raise NotServed(f"it takes {takes_s:.0f} s" + (", too long for the quick form" if self._quick else ""))
        return None

    def _has(self, name: str) -> str:
        """The broker's setting; Kafka's default where the broker does not tell."""
        told = self._target.settings
        if told.get(name) is not None:
            return str(told[name])
        if name == INTERVAL and any(other.startswith(OF_CONSUMERS) for other in told):
            return "0"  # before Kafka 4.3, assignments were made at once
        default = Profile("default", factor=1).settings.get(name)
        return default if default is not None else UNSET.get(name, "")

    def _check_settings(self, needed: Mapping[str, str]) -> None:
        for name in self._lacking(needed):
            raise NotServed(f"it needs {name}={needed[name]}, and the broker has {self._has(name) or 'none'}")

    def _check_sizes(self, needed: Mapping[str, str]) -> None:
        for name in SIZES:
            if name not in needed and int(self._has(name)) < MEMBERS:
                raise NotServed(f"it needs {name}={MEMBERS} or more, and the broker has {self._has(name)}")

    def _lacking(self, needed: Mapping[str, str], sessions: Sequence[float] = ()) -> list[str]:
        """The settings that the broker has otherwise. `sessions`: the timeouts in a play, in milliseconds; limits of
        sessions only matter if they make a difference for one of these."""
        return [
            name
            for name, value in needed.items()
            if self._has(name) != value and not (name in OF_SESSIONS and self._admits_same(name, value, sessions))
        ]

    def _admits_same(self, name: str, value: str, sessions: Sequence[float]) -> bool:
        limits = float(value), float(self._has(name) or "inf")
        return bool(sessions) and all(
            len({session < limit if name == OF_SESSIONS[0] else session <= limit for limit in limits}) == 1
            for session in sessions
        )

    def _factor(self, profile: Profile, commands: Sequence[str]) -> float:
        """How fast time goes in a play, for the broker's settings. Raises NotServed if they are of no speed."""
        speeds = [replace(profile, factor=factor) for factor in SPEEDS] if profile.times else [profile]
        sessions = _sessions_ms(commands)
        lacking, others = {}, {}
        for speed in speeds:
            needed = {name: value for name, value in speed.settings.items() if _counts(name, commands)}
            scaled = [session * speed.factor for session in sessions]
            lacking[speed.factor] = {name: needed[name] for name in self._lacking(needed, scaled)}
            others[speed.factor] = len(self._lacking(speed.settings))
        nearest = min(lacking, key=lambda factor: (len(lacking[factor]), others[factor]))
        self._check_settings(lacking[nearest])
        return nearest

    # -- playing

    def run(self, say: Say = lambda text: None) -> list[Play]:
        """Every file's outcome, in the order of the names. Raises Ended if the run has to end, Gone if the broker does
        not answer any more."""
        found: dict[str, Play] = {}
        open_ones = self.files
        for number, at_a_time in enumerate((self._parallel, *AGAIN)):
            if not open_ones:
                break
            if number:
                say(f"{len(open_ones)} files differ, and are played again, {at_a_time} at a time")
            for play in self._round(open_ones, min(at_a_time, self._parallel), CALM if number else PATIENCE):
                if play.why and play.file in found:
                    continue  # the time of the quick form is over, so the first play counts
                found[play.file] = play
            # Only scenarios go by the clock, so a sequence is played again once.
            open_ones = [
                file for file in open_ones if found[file.name].state == DIFFERENT and (file.is_scenario or not number)
            ]
        return sorted([*map(_judged, found.values()), *self.not_played])

    def _round(self, files: Sequence[File], at_a_time: int, patience: Patience) -> list[Play]:
        # Kafka verifies the transactions of all clients in batches. The first one of a batch decides which
        # error all get (`transactionSupportedOperation` of AddPartitionsToTxnManager), so they come one after another.
        in_turn = [file for file in files if not file.is_scenario and file.name.startswith("transactions_")]
        alone = [file for file in files if file.is_scenario and reference.scenario(file.name).scenario.is_alone]
        others = sorted((file for file in files if file not in in_turn + alone), key=self._length, reverse=True)
        with ThreadPoolExecutor(max(2, at_a_time)) as pool:
            together: list[Future[list[Play]]] = [
                pool.submit(lambda chosen: [self._play(file, patience) for file in chosen], chosen)
                for chosen in [in_turn, alone, *([file] for file in others)]
            ]
            try:
                return [play for future in together for play in future.result()]
            except Gone as gone:
                found = Gone(f"{gone}; it went while these were played: {', '.join(sorted(self._lost))}")
                found.files = frozenset(self._lost)
                raise found from None

    def _length(self, file: File) -> float:
        if not file.is_scenario:
            return 5.0
        return sum(reference.scenario(file.name).scenario.hints.elapsed_ms) / 1000 * self._factors[file.name]

    def _play(self, file: File, patience: Patience) -> Play:
        began = time.monotonic()
        if self._quick and began - self._began + self._length(file) > QUICK_S:
            return Play(file.name, file.rows, why="the time of the quick form was over")
        self._target.check()
        try:
            play = self._play_scenario(file, patience) if file.is_scenario else self._play_sequence(file)
        except NotServed as reason:
            return Play(file.name, file.rows, why=str(reason))
        except (OSError, KafkaError, ProtocolError) as error:
            play = Play(file.name, file.rows, why=_told(error))
        if play.state != KEPT:
            self._look_after(file)
        return play._replace(seconds=round(time.monotonic() - began, 3))

    def _look_after(self, file: File) -> None:
        """After an answer that is not Kafka's: the broker may be gone."""
        try:
            self._target.look()
        except Gone:
            self._lost.append(file.name)
            raise

    # -- a scenario

    def _play_scenario(self, file: File, patience: Patience) -> Play:
        scenario, expected = reference.scenario(file.name)
        factor = self._factors[file.name]
        prefix = f"{self._target.run}{file.name}.{next(self._plays)}."
        shared = None if scenario.makes_topics else self._target.shared
        patience = replace(patience, parked=max(patience.parked, scenario.profile.parked_s))
        world = WireWorld(
            self._target.broker,
            prefix,
            scenario.hints,
            factor,
            shared,
            patience,
            shared_prefix=self._target.run,
            check=self._target.check,
        )
        transcript: list[list[str]] = []
        failure: Lines = ()
        began = time.monotonic()
        pulse: Pulse | None = None
        stack = ExitStack()
        try:
            if patience.measured:
                pulse = stack.enter_context(pulse_of(lambda: self._target.broker))
            if scenario.own_topics is not None:
                world.do_topics(**scenario.own_topics)
            for command in scenario.commands:
                transcript.append(world.step(command))
                if not _same(expected[len(transcript) - 1], transcript[-1], world.lowered):
                    break  # what follows would be another story
        except FAILURES as error:
            failure = (_told(error),)
        finally:
            stack.close()
            with suppress(*FAILURES):
                world.forget_settings()
            world.close()
        at = len(transcript) if failure else len(transcript) - 1
        if not failure and at == len(scenario.commands) - 1 and _same(expected[at], transcript[at], world.lowered):
            return Play(file.name, file.rows, kept=file.rows)
        came = failure or tuple(transcript[at])
        waited = sum(scenario.hints.elapsed_ms[: at + 1]) > 0
        late_s = 0.0 if pulse is None else pulse.late_s
        took_s = time.monotonic() - began
        is_late = (
            late_s > LATE * factor or world.late_s > DRIFT * factor if waited else took_s > LONGEST_UNWAITED_S * factor
        )
        rows = _concerned(file.rows, [*came, *expected[at].lines])
        found = Difference(file.name, scenario.commands[at], came, expected[at].lines, rows)
        late_s = (max(late_s, world.late_s) if waited else took_s) if is_late else 0.0
        return Play(file.name, file.rows, differences=(found,), late_s=late_s)

    # -- a sequence

    def _play_sequence(self, file: File) -> Play:
        name = f"{self._target.run}{file.name}.{next(self._plays)}"
        stage: Stage | None = None
        rows: tuple[str, ...] = ()
        kept: dict[str, None] = {}
        wrong: dict[str, Difference] = {}
        try:
            stage = Stage(self._target.broker, name, self._target.check)
            for step in reference.sequence(file.name):
                if not step.is_command:
                    rows = tuple(dict.fromkeys(rows_of([step.text]))) or rows
                    continue
                failure: Lines = ()
                came: Lines = ()
                try:
                    came = tuple(line.replace(name, file.name) for line in stage.run(step.text))
                except FAILURES as error:
                    failure = (_told(error),)
                if failure or not _same(step.expected, came, stage.lowered):
                    concerned = rows or file.rows
                    found = Difference(file.name, step.text, failure or came, step.expected.lines, concerned)
                    wrong |= {row: found for row in concerned if row not in wrong}
                else:
                    kept |= dict.fromkeys(rows)
                if failure:
                    break  # its connection is closed, or a wait was in vain
        finally:
            if stage is not None:
                with suppress(*FAILURES):
                    stage.forget()
                stage.close()
        differences = tuple(dict.fromkeys(wrong.values()))
        return Play(file.name, file.rows, tuple(row for row in kept if row not in wrong), differences)


def _judged(play: Play) -> Play:
    if not play.differences or not play.late_s:
        return play
    why = f"an answer is different, but this machine or the broker was {play.late_s:.1f} s late"
    return Play(play.file, play.rows, why=why, seconds=play.seconds)


def _same(expected: Expected, came: Sequence[str], lowered: Iterable[str]) -> bool:
    """`lowered`: fields that the versions in which this broker was asked do not have."""
    if expected.fits(came) or _sorted(came) == _sorted(expected.lines):
        return True
    dropped = set(lowered)
    if not dropped:
        return False
    return without(came, dropped) == without(expected.lines, dropped)


def _sorted(lines: Iterable[str]) -> list[str]:
    """The names of a run are in another order, and its groups at other partitions of `__consumer_offsets`."""
    return sorted(re.sub(r"(topic='__consumer_offsets' partitions)=\S+", r"\1", line) for line in lines)


def _told(error: BaseException) -> str:
    text = str(error.__cause__ or error) or repr(error)
    return f"no good answer: {' '.join(text.split())[:200]}"


def _counts(name: str, commands: Sequence[str]) -> bool:
    """True if the setting can change an answer to these commands: limits of groups' own settings rarely do."""
    if not name.startswith(OF_CONSUMERS):
        return True
    verbs = {command.split()[0] for command in commands}
    return "group-config" in verbs or ("beat" in verbs and not name.startswith(LIMITS))


def _sessions_ms(commands: Sequence[str]) -> list[int]:
    """The session timeouts of classic members; 10 s where a command names none."""
    words = (word for command in commands for word in command.split() if word.startswith("session="))
    return [10_000, *(duration(word.removeprefix("session=")) for word in words)]


FAMILIES = {
    "JoinGroup": "J",
    "SyncGroup": "S",
    "Heartbeat": "H",
    "LeaveGroup": "L",
    "OffsetCommit": "O",
    "fetched": "OX",
    "OffsetDelete": "O",
    "DeleteGroups": "D",
    "described": "DN",
    "listed": "D",
    "ConsumerGroupHeartbeat": "N",
}
"""The letters of the rows that an answer may be about."""


def _concerned(rows: tuple[str, ...], lines: Sequence[str]) -> tuple[str, ...]:
    """The rows of a scenario that its answers are about; all of them if none has the letter of the API."""
    words = {word for line in lines for word in line.split()[:2]}
    letters = "".join(letters for name, letters in FAMILIES.items() if name in words)
    return tuple(row for row in rows if row.rstrip("0123456789") in [*letters]) or rows
