"""Rules about committed offsets. Each takes a case and yields findings; nothing asks the cluster.

Two surveys a few seconds apart do not tell a consumer that hangs from one between two commits. So the rules also use
the age of the oldest unread record: a partition that stands still for two seconds with a record that has waited for ten
minutes is worth a look, and one whose record is of this second is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kohort.cli.groups.doctor.case import (
    COMMIT_INTERVALS_S,
    GROWING_MS,
    LIMITS,
    WAITING_MS,
    Case,
    Finding,
    Severity,
    rest_of,
)
from kohort.cli.groups.timeline import happened
from kohort.cli.groups.wording import Document, as_document, duration
from kohort.cli.output import plural
from kohort.cli.places import words_of
from kohort.client.admin.commit_metadata import GroupReader, group_reader_of
from kohort.client.metadata import TopicPartition
from kohort.spark.history.limits import DAY, MINUTE

SHOWN_PARTITIONS = 8
REBALANCED_MS = MINUTE
"""Members that got their partitions less long ago may not have read them yet."""


def deserted(case: Case) -> Iterator[Finding]:
    """No members and unread records."""
    lags = case.lags()
    if case.after.group.members or not lags or case.after.group.state != "Empty":
        return
    moved = [place for place in lags if case.step(place) > 0]
    reader = _reader(case, lags)
    if moved and reader is None:
        yield Finding(
            Severity.INFO,
            case.name,
            "commits without members",
            f"has no members, and its offsets in {_some(moved)} moved within {case.seconds:.1f} s: a process that is "
            "not a member commits",
            "Nothing is to be done if this process assigns its partitions itself",
            weight=len(moved),
        )
        return
    if moved:
        return
    total, written = sum(lags.values()), case.written(lags)
    grows = f", and {plural(written, 'record')} came within {case.seconds:.1f} s" if written else ""
    waiting = f"{_waiting(total)}{case.age_words(lags)}{grows}"
    if reader is not None:
        if any(case.waits_longer_than(LIMITS.standstill_ms, place) for place in lags):
            yield Finding(
                Severity.WARNING,
                case.name,
                "query stands still",
                f"is read by {reader}, which committed nothing within {case.seconds:.1f} s: {waiting}",
                "Look whether the query runs, and how long its batches take",
                weight=total,
            )
        return
    yield Finding(
        Severity.CRITICAL if written else Severity.WARNING,
        case.name,
        "deserted",
        f"has no members: {waiting}{_last_member(case)}",
        "Start a consumer; if nobody needs the group, delete it",
        f"kohort groups delete {case.quoted}",
        total,
    )


def _reader(case: Case, places: Iterable[TopicPartition]) -> GroupReader | None:
    """The Spark query that committed one of these offsets."""
    found = (group_reader_of(case.after.committed[place].metadata) for place in places)
    return next((reader for reader in found if reader is not None), None)


def _last_member(case: Case) -> str:
    """Why and when the group became empty, if the journal has it."""
    story = next((one for one in reversed(case.stories) if one.get("outcome") == "Empty"), None)
    if story is None:
        return ""
    ended_ms = story["started_ms"] + story.get("took_ms", 0)
    why = happened(story.get("cause", {}), case.names(), consumers=story.get("group_type") == "consumer")
    return f"; {why}, {duration(max(case.server_ms - ended_ms, 0))} ago"


def standing_still(case: Case) -> Iterator[Finding]:
    """Partitions whose owner does not commit although old records wait."""
    lags, owners = case.lags(), case.owners()
    held = {place for place, end in case.stable.items() if _waits_for(case, place, end.offset)}
    owned = [place for place in lags if place in owners and place in case.before.committed and place not in held]
    still = [
        place
        for place in owned
        if case.step(place) == 0 and case.waits_longer_than(WAITING_MS, place) and not _grew(case, place)
    ]
    names = case.names()
    by_owner: dict[str, list[TopicPartition]] = {}
    for place in still:
        by_owner.setdefault(owners[place].member_id, []).append(place)
    for places in by_owner.values():
        owner = owners[places[0]]
        who = names.with_host(as_document(owner))
        theirs = [place for place in owned if owners[place] is owner]
        all_of_them = len(places) == len(theirs)
        total = sum(lags[place] for place in places)
        what = "does not commit" if all_of_them else f"does not commit {_some(places)}, but commits others"
        where = f" in {_some(places)}" if all_of_them else ""
        severity, advice, command = _proof(case, places)
        moving = set(theirs) - set(places)
        if severity is Severity.CRITICAL and any(case.waits_longer_than(LIMITS.behind_ms, place) for place in moving):
            severity = Severity.WARNING
            advice = "It is behind in others too, and may read one after the other; watch whether these move"
            command = f"kohort groups watch {case.quoted}"
        yield Finding(
            severity,
            case.name,
            "no commits" if all_of_them else "stuck",
            f"{who} {what}: nothing moved{where} within {case.seconds:.1f} s, and {_waiting(total)}"
            f"{case.age_words(places)}",
            advice,
            command,
            total,
        )


def _proof(case: Case, places: Sequence[TopicPartition]) -> tuple[Severity, str, str]:
    """How bad it is, the advice, and a command that tells more."""
    if _rebalanced_lately(case):
        advice = "Its group has just rebalanced; ask again in a minute"
        return Severity.INFO, advice, f"kohort groups doctor {case.quoted}"
    if case.seconds < COMMIT_INTERVALS_S:
        longer = f"kohort groups doctor {case.quoted} --for 30s"
        return Severity.WARNING, "It may be between two commits; look for longer", longer
    is_old = any(case.waits_longer_than(LIMITS.standstill_ms, place) for place in places)
    advice = "Look into its log for a record that fails, a long batch or refused commits; to see its partitions"
    command = f"kohort groups describe {case.quoted} --members --verbose"
    return Severity.CRITICAL if is_old else Severity.WARNING, advice, command


def _rebalanced_lately(case: Case) -> bool:
    ends = [story["started_ms"] + story.get("took_ms", 0) for story in case.stories if _is_rebalance(story)]
    return bool(ends) and case.server_ms - max(ends) < REBALANCED_MS


def _is_rebalance(story: Document) -> bool:
    return story.get("outcome") not in ("noted", "Empty")


def never_committed(case: Case) -> Iterator[Finding]:
    """Partitions with an owner and records, of which no offset was ever committed, so that the lag is not known."""
    owners = case.after.group.owners()
    found = [
        place
        for place in sorted(owners)
        if case.ends.get(place) and place not in case.after.committed and place not in case.before.committed
    ]
    if found:
        names = case.names()
        members = list({owners[place].member_id: owners[place] for place in found}.values())
        who = rest_of(names.with_host(as_document(member)) for member in members)
        yield Finding(
            Severity.INFO,
            case.name,
            "never committed",
            f"has no committed offset in {_some(found)}, which {who} {'has' if len(members) == 1 else 'have'}: the lag "
            "is not known, and after a restart they are read from where auto.offset.reset says",
            "If this lasts, look whether the program commits",
            weight=len(found),
        )


def behind(case: Case) -> Iterator[Finding]:
    """Offsets move, but not fast enough. A lag that grows is a finding sooner than one that only is large.

    A consumer commits every five seconds by default, so between the surveys an offset may stand still. Such a partition
    is behind if the server has seen the lag grow with the newest commits."""
    lags, owners = case.lags(), case.owners()
    owned = [place for place in lags if place in owners]
    moving = [place for place in owned if case.step(place) > 0 or (case.step(place) == 0 and _grew(case, place))]
    waiting = [place for place in moving if case.waits_longer_than(WAITING_MS, place)]
    grows = sum(map(case.step, waiting)) < case.written(waiting)
    old = [
        place
        for place in moving
        if case.waits_longer_than(LIMITS.behind_ms, place) or (grows and place in waiting) or _grew(case, place)
    ]
    if not old or case.seconds <= 0:
        return
    total, rose = sum(lags[place] for place in old), any(_grew(case, place) for place in old)
    out, came = sum(case.step(place) for place in old) / case.seconds, case.written(old) / case.seconds
    names, late = case.names(), {owners[place].member_id: owners[place] for place in old}
    who = rest_of(names.with_host(as_document(member)) for member in late.values())
    others = {member.member_id for member in owners.values()} - late.keys()
    text = (
        f"is behind in {_some(old)}, which {who} {'has' if len(late) == 1 else 'have'}: {_waiting(total)}"
        f"{case.age_words(old)}"
    )
    if all(case.step(place) > 0 for place in old):
        text += f"; {came:,.0f} records/s come and {out:,.0f} are committed"
    if rose:
        text += ", and the lag did not fall at any of the last commits"
    elif out > came:
        text += f", so it catches up in {duration(round(total / (out - came) * 1000))} if this goes on"
    yield Finding(
        Severity.INFO if out > came and not rose else Severity.WARNING,
        case.name,
        "behind",
        text,
        ("The other members keep up: look into this one's log and machine" if len(late) == 1 else "The others keep up")
        + ", and whether its partitions get more records; watch whether the lag shrinks"
        if others
        else "More members help up to the number of partitions; watch whether the lag shrinks",
        f"kohort groups watch {case.quoted}",
        total,
    )


def _grew(case: Case, place: TopicPartition) -> bool:
    """The server says, in both surveys, that the lag has not fallen at any of the newest commits (Burrow's WARN). The
    age excludes readers that are at the end: with a transaction's marker there, their lag never falls."""
    told = [(one.lags or {}).get(place) for one in (case.before, case.after)]
    is_told = all(one is not None and one.burrow == "WARN" for one in told)
    return is_told and case.ages_ms.get(place, 0) > GROWING_MS


def went_back(case: Case) -> Iterator[Finding]:
    back = [place for place in case.after.committed if case.step(place) < 0]
    if back:
        most = max(-case.step(place) for place in back)
        yield Finding(
            Severity.WARNING,
            case.name,
            "rewind",
            f"went back to older offsets in {_some(sorted(back))} within {case.seconds:.1f} s, "
            f"by {plural(most, 'record')} at most",
            "If nobody has reset it, two consumers commit the same partitions; the history shows which",
            "kohort pipeline history",
            most,
        )


def out_of_range(case: Case) -> Iterator[Finding]:
    """Offsets before the start or after the end of the log: the next fetch there is refused."""
    offsets = case.after.committed
    early = [place for place in sorted(offsets) if offsets[place].offset < case.starts.get(place, 0)]
    late = [place for place in sorted(offsets) if offsets[place].offset > case.ends.get(place, offsets[place].offset)]
    stop = "stop its members, and then " if case.after.group.members else ""
    if early:
        lost = sum(case.starts[place] - offsets[place].offset for place in early)
        yield Finding(
            Severity.WARNING,
            case.name,
            "out of range",
            f"has offsets before the start of the log in {_some(early)}: {plural(lost, 'offset')} that it has not read "
            "are deleted, and a member that starts there goes on where its auto.offset.reset says",
            f"To go on at the start of the log, {stop}move the offsets there",
            f"kohort groups reset-offsets {case.quoted} --all-topics --shift-by 0",
            lost,
        )
    if late:
        ahead = max(offsets[place].offset - case.ends[place] for place in late)
        yield Finding(
            Severity.CRITICAL,
            case.name,
            "out of range",
            f"has offsets after the end of the log in {_some(late)}, by {ahead:,} at most: the topic was made anew "
            "or lost records, and new records are skipped or read twice",
            f"To go on at the end of the log, {stop}move the offsets there",
            f"kohort groups reset-offsets {case.quoted} --all-topics --shift-by 0",
            ahead,
        )


def expiring(case: Case) -> Iterator[Finding]:
    """The offsets of an empty group are deleted after the brokers' retention time. Only a journal says since when."""
    status = case.status
    since_ms = status.get("since_ms") or 0
    if case.retention_ms is None or not case.after.committed or status.get("phase") != "Empty" or not since_ms:
        return
    left_ms = since_ms + case.retention_ms - case.server_ms
    if left_ms > LIMITS.expiry_warning_ms:
        return
    # The time of a classic group counts from when it became empty, that of a consumer group from the commits before.
    at_most = " at most" if case.after.group.type == "consumer" else ""
    when = f"in {duration(left_ms)}{at_most}" if left_ms > 0 else "at any moment"
    yield Finding(
        Severity.CRITICAL if left_ms < DAY // 2 else Severity.WARNING,
        case.name,
        "expiring",
        f"loses {plural(len(case.after.committed), 'offset')} {when}: it has had no members for "
        f"{duration(case.server_ms - since_ms)}, and offsets.retention.minutes is over then",
        "Start a member, or keep a copy of the offsets",
        f"kohort groups export {case.quoted} > offsets.json",
        len(case.after.committed),
    )


def held_back(case: Case) -> Iterator[Finding]:
    """Readers of committed records that wait for an open transaction."""
    for place, end in sorted(case.stable.items()):
        if not _waits_for(case, place, end.offset):
            continue
        hanging = case.waits_longer_than(LIMITS.standstill_ms, place)
        yield Finding(
            Severity.CRITICAL if hanging else Severity.WARNING,
            case.name,
            "open transaction",
            f"waits for an open transaction; {end.line}",
            "Find out whether somebody still ends the transaction, and abort it if not",
            f"kohort transactions find-hanging --topic {place[0]}",
            end.end - end.offset,
        )


def _waits_for(case: Case, place: TopicPartition, stable: int) -> bool:
    """Whether the group has read up to the last stable offset, and no further: it reads committed records."""
    now = case.after.committed.get(place)
    return now is not None and now.offset == stable and case.step(place) == 0


def deleted_topics(case: Case) -> Iterator[Finding]:
    gone = sorted(place for place in case.after.committed if place[0] in case.missing_topics)
    if gone:
        topics = sorted({topic for topic, _ in gone})
        yield Finding(
            Severity.INFO,
            case.name,
            "deleted topic",
            f"has {plural(len(gone), 'offset')} in topics that do not exist: {rest_of(topics)}",
            "Delete these offsets if the topics do not come back",
            f"kohort groups delete-offsets {case.quoted} {' '.join(f'--topic {topic}' for topic in topics)}",
            len(gone),
        )


def _waiting(count: int) -> str:
    return f"{plural(count, 'record')} {'waits' if count == 1 else 'wait'}"


def _some(places: Sequence[TopicPartition]) -> str:
    """`orders[0-2] refunds[1]`, and how many more there are."""
    shown = places[:SHOWN_PARTITIONS]
    more = f" and {plural(len(places) - len(shown), 'partition')} more" if len(places) > len(shown) else ""
    return words_of(shown) + more


RULES = (
    deserted,
    standing_still,
    never_committed,
    behind,
    went_back,
    out_of_range,
    expiring,
    held_back,
    deleted_topics,
)
