"""What the doctor finds in share groups: records that stop the group, deliveries in vain, and nobody that works.

What is in flight, and how deliveries ended, only kohort tells; elsewhere only the lag counts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from kohort.cli.groups.doctor.case import Case, Finding, Severity, rest_of
from kohort.cli.groups.shares.describing import counted, is_full, offsets_words, stuck_words
from kohort.cli.groups.wording import as_document, duration
from kohort.cli.output import plural
from kohort.cli.places import words_of
from kohort.client.admin.share_groups import ShareOffset
from kohort.client.metadata import TopicPartition
from kohort.spark.history.limits import MINUTE

STANDS_MS = 10 * MINUTE
"""A record that is not finished for longer is worth a look."""
IDLE_MS = MINUTE
RECENT_MS = 60 * MINUTE
LEAST_DELIVERIES = 10
IN_VAIN = 0.5
"""The share of deliveries within the look that ended without a result."""
SHOWN = 3
LOCK = "share.record.lock.duration.ms"
LIMIT = "share.delivery.count.limit"
REJECTED, TOO_OFTEN = "rejected", "delivered too often"
IN_VAIN_OUTCOMES = ("released", "lock ended", "session over", TOO_OFTEN)


def _places(case: Case) -> dict[TopicPartition, ShareOffset]:
    return dict(case.after.shares.partitions) if case.after.shares is not None else {}


def _more(case: Case) -> dict[str, int]:
    """How often each outcome came between the surveys."""
    if case.after.shares is None or case.before.shares is None:
        return {}
    before = counted(case.before.shares)
    return {what: count - before.get(what, 0) for what, count in counted(case.after.shares).items()}


def window_full(case: Case) -> Iterator[Finding]:
    """Nothing new is handed out, because one record is not finished."""
    for place, one in _places(case).items():
        records = one.records or {}
        if not is_full(one) or records.get("stands_ms", 0) < IDLE_MS:
            continue
        yield Finding(
            Severity.CRITICAL,
            case.name,
            "window full",
            f"hands out nothing new of {words_of([place])}: {plural(records['window'], 'offset')} may be open, and the "
            f"first is not finished: {stuck_words(one)}",
            "Finish this record: release it from its member, or let a member reject it",
            _release(case, place, one),
            one.lag or 0,
        )


def stuck(case: Case) -> Iterator[Finding]:
    """A record that is not finished for long."""
    for place, one in _places(case).items():
        stands_ms = (one.records or {}).get("stands_ms", 0)
        if not one.lag or stands_ms < STANDS_MS or is_full(one) or not case.after.group.members:
            continue
        yield Finding(
            Severity.WARNING,
            case.name,
            "stuck record",
            f"has not finished the first record of {words_of([place])}: {stuck_words(one)}",
            "If its member hangs, give the record to another one",
            _release(case, place, one),
            stands_ms,
        )


def _release(case: Case, place: TopicPartition, one: ShareOffset) -> str:
    holder = (one.records or {}).get("first_member")
    if not holder:
        return f"kohort groups describe {case.quoted}"
    where = shlex.quote(f"{place[0]}:{place[1]}")
    return f"kohort groups release {case.quoted} {shlex.quote(holder)} --topic {where}"


def in_vain(case: Case) -> Iterator[Finding]:
    """Many deliveries end without a result; locks that end."""
    more = _more(case)
    vain = sum(more.get(what, 0) for what in IN_VAIN_OUTCOMES)
    ended = vain + more.get("accepted", 0) + more.get(REJECTED, 0)
    if ended >= LEAST_DELIVERIES and vain > IN_VAIN * ended:
        words = ", ".join(f"{more[what]} {what}" for what in IN_VAIN_OUTCOMES if more.get(what))
        yield Finding(
            Severity.WARNING,
            case.name,
            "redeliveries",
            f"delivers again and again: {vain} of {ended} deliveries that ended within {case.seconds:.1f} s gave no "
            f"result ({words})",
            "Look why members give records back; records that never succeed should be rejected",
            f"kohort groups describe {case.quoted}",
            vain,
        )
    if expired := more.get("lock ended", 0):
        yield Finding(
            Severity.WARNING,
            case.name,
            "locks end",
            f"takes {plural(expired, 'record')} from members within {case.seconds:.1f} s, because their locks ended "
            f"before they were acknowledged",
            f"Take fewer records at a time, renew the locks, or make them longer ({LOCK})",
            f"kohort groups configs {case.quoted}",
            expired,
        )


def given_up(case: Case) -> Iterator[Finding]:
    """Records that were archived within the last hour."""
    found: dict[str, list[tuple[TopicPartition, int, int]]] = {}
    for place, one in _places(case).items():
        records = one.records or {}
        for first, last, _, why, _, at_ms, *_ in records.get("archived", ()):
            if records["now_ms"] - at_ms < RECENT_MS:
                found.setdefault(why, []).append((place, first, last))
    for why, severity in ((TOO_OFTEN, Severity.WARNING), (REJECTED, Severity.INFO)):
        if rows := found.get(why):
            count = sum(last - first + 1 for _, first, last in rows)
            where = rest_of((f"{words_of([place])} {offsets_words(first, last)}" for place, first, last in rows), SHOWN)
            verb = "gave up" if why == TOO_OFTEN else "rejected"
            because = f" after as many deliveries as {LIMIT} allows" if why == TOO_OFTEN else ""
            yield Finding(
                severity,
                case.name,
                verb,
                f"{verb} {plural(count, 'record')} within the last hour{because}: {where}",
                "When the cause is mended, deliver them again",
                f"kohort groups redeliver {case.quoted} --archived --why {shlex.quote(why)}",
                count,
            )


def without_dead_letters(case: Case) -> Iterator[Finding]:
    """Dead letters that could not be written."""
    offsets = case.after.shares
    count = counted(offsets).get("without a dead letter", 0) if offsets is not None else 0
    if count:
        yield Finding(
            Severity.WARNING,
            case.name,
            "no dead letters",
            f"gave up {plural(count, 'record')} without dead letters, although it names a dead-letter topic",
            "The journal says why: the topic is missing, has another prefix, or lacks "
            "errors.deadletterqueue.group.enable=true",
            f"kohort groups explain {case.quoted}",
            count,
        )


def deserted(case: Case) -> Iterator[Finding]:
    """Unfinished records and no members."""
    lag = case.after.shares.lag if case.after.shares is not None else None
    if case.after.group.members or not lag or case.after.group.state != "Empty":
        return
    written = case.written(_places(case))
    grows = f", and {plural(written, 'record')} came within {case.seconds:.1f} s" if written else ""
    yield Finding(
        Severity.CRITICAL if written else Severity.WARNING,
        case.name,
        "deserted",
        f"has no members: {plural(lag, 'record')} {'is' if lag == 1 else 'are'} unfinished{grows}",
        "Start a member; if nobody needs the group, delete it",
        f"kohort groups delete {case.quoted}",
        lag,
    )


def idle(case: Case) -> Iterator[Finding]:
    """Members that take nothing although there are records for them."""
    members = case.after.group.members
    if not members or _more(case).get("delivered", 0):
        return
    waiting = {
        place: one
        for place, one in _places(case).items()
        if one.records is not None
        and one.lag
        and not one.in_flight
        and one.records.get("stands_ms", 0) > IDLE_MS
        and not is_full(one)
    }
    if waiting:
        takes = "takes" if len(members) == 1 else "take"
        names = case.names()
        who = rest_of(names.with_host(as_document(member)) for member in members)
        stands = max((one.records or {}).get("stands_ms", 0) for one in waiting.values())
        yield Finding(
            Severity.WARNING,
            case.name,
            "members fetch nothing",
            f"has {plural(len(members), 'member')} that {takes} nothing of {words_of(waiting)} for {duration(stands)}, "
            f"where {plural(sum(one.lag or 0 for one in waiting.values()), 'record')} wait: {who}",
            "Look whether they poll, and whether they still work on records of other partitions",
            f"kohort groups describe {case.quoted} --members --verbose",
            sum(one.lag or 0 for one in waiting.values()),
        )


RULES = (window_full, stuck, in_vain, given_up, without_dead_letters, deserted, idle)
