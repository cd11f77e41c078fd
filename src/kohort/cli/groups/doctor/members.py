"""Rules about the members of a group: who has which partitions, what they subscribe to, and by which protocol."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from kohort.cli.groups.doctor.case import COMMIT_INTERVALS_S, Case, Finding, Severity, rest_of
from kohort.cli.groups.timeline import REBALANCING, VERBS, unheard_of
from kohort.cli.groups.wording import as_document, duration
from kohort.cli.output import plural
from kohort.client.admin.groups import GroupMember
from kohort.wire.embedded import CONSUMER_PROTOCOL

LONG_MS = 10_000
"""A rebalance that runs for longer is worth a line; after six times as long it is critical."""

UNEVEN_BY_DESIGN = frozenset({"lag"})
"""Assignors that give members equal lag, and not equal numbers of partitions."""


def unbalanced(case: Case) -> Iterator[Finding]:
    """Members without partitions, or with many more than others, where all subscribe to the same topics."""
    group = case.after.group
    members = group.members
    if group.protocol_type != CONSUMER_PROTOCOL or group.state != "Stable" or not members or _is_held(case):
        return
    if len({member.subscribed for member in members}) > 1 or any(member.pattern for member in members):
        return
    if group.protocol in UNEVEN_BY_DESIGN:
        return
    sizes = {member.member_id: sum(map(len, member.assigned.values())) for member in members}
    total, least, most = sum(sizes.values()), min(sizes.values()), max(sizes.values())
    idle = [member for member in members if not sizes[member.member_id]]
    if idle and total < len(members):
        yield Finding(
            Severity.INFO,
            case.name,
            "more members than partitions",
            f"has {plural(len(members), 'member')} and {plural(total, 'partition')}: {_who(case, idle)} "
            f"{'has' if len(idle) == 1 else 'have'} nothing to do",
            "Stop members that are not meant as a reserve, or give the topic more partitions",
            weight=len(idle),
        )
    elif (idle and total) or most > 2 * max(least, 1):
        yield Finding(
            Severity.WARNING,
            case.name,
            "unbalanced",
            f"shares {plural(total, 'partition')} unevenly: its members have between {least} and {most}"
            + (f", and {_who(case, idle)} {'has' if len(idle) == 1 else 'have'} none" if idle else ""),
            "See what an even assignor would do",
            f"kohort groups assign --dry-run {case.quoted} --assignor uniform",
            most - least,
        )


def _who(case: Case, members: list[GroupMember]) -> str:
    names = case.names()
    return rest_of(names.with_host(as_document(member)) for member in members)


def _is_held(case: Case) -> bool:
    """A gradual hand-over or a rollout freeze is under way."""
    return bool(case.status.get("held_back") or case.status.get("held_partitions"))


def without_owner(case: Case) -> Iterator[Finding]:
    """Partitions of subscribed topics that no member has although the group is stable."""
    group = case.after.group
    if group.protocol_type != CONSUMER_PROTOCOL or group.state != "Stable" or not group.members or _is_held(case):
        return
    owned = case.after.group.owners()
    topics = sorted({topic for member in group.members for topic in member.subscribed})
    missing = {
        topic: [index for index in range(case.partitions_of.get(topic, 0)) if (topic, index) not in owned]
        for topic in topics
    }
    found = {topic: indexes for topic, indexes in missing.items() if indexes}
    if found:
        count = sum(map(len, found.values()))
        yield Finding(
            Severity.WARNING,
            case.name,
            "without owner",
            f"is stable, and nobody reads {plural(count, 'partition')} of {rest_of(found)}, to which members subscribe",
            "Restart a member so that the group assigns anew; if that does not help, the assignor leaves them out",
            f"kohort groups describe {case.quoted} --members --verbose",
            count,
        )


def missing_topics(case: Case) -> Iterator[Finding]:
    """Subscriptions to topics that do not exist."""
    subscribers: dict[str, list[GroupMember]] = {}
    for member in case.after.group.members:
        for topic in member.subscribed:
            if topic in case.missing_topics:
                subscribers.setdefault(topic, []).append(member)
    for topic, members in sorted(subscribers.items()):
        near = case.missing_topics[topic]
        yield Finding(
            Severity.WARNING,
            case.name,
            "missing topic",
            f"subscribes to topic {topic}, which does not exist ({_who(case, members)})",
            f"Did you mean {near}? Else create the topic" if near else "Create the topic, or change the subscription",
            f"kohort topics create {shlex.quote(topic)}",
            len(members),
        )


def mixed(case: Case) -> Iterator[Finding]:
    """Members of one group that differ in protocol or subscription."""
    members = case.after.group.members
    protocols = Counter(member.protocol for member in members if member.protocol)
    if len(protocols) > 1:
        classic = [member for member in members if member.protocol == "classic"]
        yield Finding(
            Severity.INFO,
            case.name,
            "mixed protocols",
            f"is in the middle of a migration: {len(classic)} of {plural(len(members), 'member')} "
            f"{'speaks' if len(classic) == 1 else 'speak'} the classic protocol ({_who(case, classic)})",
            "Restart these members with group.protocol=consumer when the others work well",
            weight=len(classic),
        )
    subscriptions = Counter(member.subscribed for member in members if member.subscribed)
    if len(subscriptions) > 1:
        words = "; ".join(
            f"{plural(count, 'member')}: {rest_of(topics)}" for topics, count in subscriptions.most_common(3)
        )
        yield Finding(
            Severity.INFO,
            case.name,
            "mixed subscriptions",
            f"has members with different subscriptions ({words})",
            "If that is not meant, run one version of the program in all members",
            weight=len(subscriptions),
        )


def rebalancing(case: Case) -> Iterator[Finding]:
    """A rebalance that takes long, and the members for which the others wait."""
    if case.before.group.state not in REBALANCING or case.after.group.state not in REBALANCING:
        return
    status = case.status
    since_ms = status.get("since_ms")
    lasts_ms = case.server_ms - since_ms if since_ms else round(case.seconds * 1000)
    if lasts_ms < LONG_MS and (since_ms or case.seconds < COMMIT_INTERVALS_S):
        return
    awaited = [member for member in status.get("members", ()) if member["state"] in VERBS]
    names = case.names()
    whom = rest_of(
        [f"{names.with_host(member)} {VERBS[member['state']]}" for member in awaited]
        + [f"the next heartbeat of {names.with_host(member)}" for member in unheard_of(status)]
    )
    why = f" ({status['why']})" if status.get("why") else ""
    yield Finding(
        Severity.CRITICAL if lasts_ms >= 6 * LONG_MS else Severity.WARNING,
        case.name,
        "rebalancing",
        f"has been {case.after.group.state} for {duration(lasts_ms)}{'' if since_ms else ' at least'}{why}"
        + (f": it waits for {whom}" if whom else ""),
        "The members have to finish their batches, or the group waits until they time out",
        f"kohort groups explain {case.quoted} --follow" if status else "",
        lasts_ms,
    )


RULES = (unbalanced, without_owner, missing_topics, mixed, rebalancing)
