"""A group's stories as lines of text: the cause of a rebalance, its duration, the members that delayed it, the moves.

Every function takes documents of `kohort.client.admin.explanations` and returns text; nothing prints. A document may
come from a newer server or lack fields: only a story's number and start are certain.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from kohort.cli.groups.wording import Document, Line, Names, duration, instant, partitions, people_of, utc
from kohort.cli.output import plural

SHOWN_MEMBERS = 8
"""Members of a story whose partitions are shown; `-o json` has all."""
SHOWN = 5
"""Changed offsets of a story that are shown."""
OF_RECORDS = ("records archived", "records redelivered", "share offsets set", "share offsets deleted")
"""Happenings of a share group, each with a line of its own."""
NOTABLE_MS = 10
"""Shorter phases are left out."""
NOTABLE_WAIT_MS = 500
"""Shorter waits for a member that was merely the last are left out."""
ORDINARY = ("joined last", "led and synced late", "gave up late")


def story_lines(story: Document, names: Names) -> list[Line]:
    if story.get("changed"):
        return change_lines(story, names)
    lines = [_head(story, names)]
    if story.get("outcome") != "noted":
        lines.append(Line(_outcome(story), 4))
        lines += [Line(text, 4) for text in (*_held_up(story, names), *_held_back(story))]
    lines += [Line(text, 4) for text in _further(story, names)]
    if told := _told(story):
        lines.append(Line(told, 4))
    if story.get("outcome") in ("Stable", "Empty"):
        lines += _moves(story, names)
    return lines


def change_lines(story: Document, names: Names) -> list[Line]:
    """Committed offsets that were changed from outside, deleted, or have expired; `kohort groups restore` undoes it."""
    rows = [(topic, *row) for topic, rows in sorted(story["changed"].items()) for row in sorted(rows)]
    lines = [_head(story, names)]
    lines += [Line(f"{topic}[{index}]: {_offset(old)} → {_offset(new)}", 4) for topic, index, old, new in rows[:SHOWN]]
    if len(rows) > SHOWN:
        lines.append(Line(f"and {len(rows) - SHOWN} more, with -o json", 4))
    undo = f"kohort groups restore {shlex.quote(str(story.get('group', '')))} --before {utc(story['started_ms'])}"
    return [*lines, Line(f"to undo, with all changes from outside since then: {undo}", 4, whole=True)]


def _head(story: Document, names: Names) -> Line:
    return Line(f"#{story['number']}  {instant(story['started_ms'])}  {headline(story, names)}", bold=True)


def headline(story: Document, names: Names) -> str:
    """What a story is about: why a rebalance began, or which offsets were changed."""
    cause = story.get("cause", {})
    if not story.get("changed"):
        return happened(cause, names, consumers=_is_of_consumer_group(story))
    changed = sum(map(len, story["changed"].values()))
    count = plural(changed, "committed offset")
    who = names.with_host(cause) if cause.get("client_id") else ""
    if cause.get("what") == "offsets changed":
        return f"{who} set {count} without being a member" + (
            ", and committed again and again" if story.get("goes_on") else ""
        )
    if who:
        return f"{who} deleted {count}"
    verb = "was" if changed == 1 else "were"
    return f"{count} {verb} deleted: {str(cause.get('cause', '')).partition('; ')[2]}"


def _offset(offset: int) -> str:
    return str(offset) if offset >= 0 else "none"


def _is_of_consumer_group(story: Document) -> bool:
    return story.get("group_type") == "consumer"


def happened(happening: Document, names: Names, *, consumers: bool = False) -> str:
    """One event of a story in words. `consumers`: in a consumer group, where no change makes a member rejoin."""
    what, cause = happening.get("what", "?"), happening.get("cause", "")
    who = names.with_host(happening)
    because = f": {cause}" if cause else ""
    match what:
        case "member joined":
            return f"{who} joined{because}"
        case "member left":
            return f"{who} left{because if cause != 'it left' else ''}"
        case "session expired":
            return f"{who}: session expired after {_exactly(happening.get('waited_ms'))} of silence"
        case "member removed":
            waited = happening.get("waited_ms")
            after = f", after {duration(waited)}" if waited is not None else ""
            return f"{who} was removed{because}{after}"
        case "subscription changed" if consumers:
            return f"{who} changed its subscription{because}"
        case "subscription changed":
            return f"{who} rejoined{because}" if cause else f"{who} changed its subscription"
        case "subscription refused":
            return f"{who} was refused its subscription{because}"
        case "leader rejoined":
            return f"the leader {who} rejoined{because}"
        case "static member returned":
            return f"static member {who} returned{because}"
        case "records archived":
            return f"{who}: {cause}" if happening.get("member_id") else f"archived: {cause}"
        case "records redelivered":
            return f"{who} asked for another delivery of {cause}"
        case "share offsets set":
            return f"{who} set start offsets: {cause}"
        case "share offsets deleted":
            return f"{who} deleted the offsets of {cause}"
        case "server paused":
            given = duration(happening.get("waited_ms"))
            return f"{cause}: the members got {given} more"
        case "rebalance started" | "generation began" | "group is stable" | "group is empty":
            return str(cause or what)
        case _:
            return f"{what}{because}"


def _exactly(milliseconds: int | None) -> str:
    return f"{milliseconds} ms" if milliseconds is not None and milliseconds < 60_000 else duration(milliseconds)


def _outcome(story: Document) -> str:
    took = duration(story.get("took_ms")) + _phases(story)
    before, after = story.get("generation_before", -1), story.get("generation_after", -1)
    word = "group epoch" if _is_of_consumer_group(story) else "generation"
    generation = f", {word} {before} → {after}" if after >= 0 and after != before else ""
    count = story.get("members_count")
    match story.get("outcome", ""):
        case "Stable":
            members = f", {plural(count, 'member')}" if count is not None else ""
            assignor = f", by {story['protocol']}" if _is_of_consumer_group(story) and story.get("protocol") else ""
            return f"stable after {took}{generation}{members}{assignor}"
        case "Empty":
            return f"empty after {took}{generation}"
        case "superseded":
            return f"overtaken by the next rebalance after {took}{generation}"
        case "interrupted":
            after = f" after {took}" if story.get("took_ms") is not None else ""
            return f"interrupted{after}: the server stopped or the group moved{generation}"
        case "":
            return f"still running{generation}"
        case other:
            return f"{other} after {took}{generation}"


def _phases(story: Document) -> str:
    words = {
        "PreparingRebalance": "joining",
        "CompletingRebalance": "assigning",
        "Assigning": "assigning",
        "Reconciling": "handing over",
    }
    found = []
    for phase in story.get("phases", ()):
        took = phase.get("took_ms")
        if took is not None and took >= NOTABLE_MS:
            ended_by = " until time was up" if phase.get("ended_by") == "time was up" else ""
            found.append(f"{words.get(phase['phase'], phase['phase'])} {duration(took)}{ended_by}")
    return f" ({', '.join(found)})" if len(found) > 1 or "until" in "".join(found) else ""


def _held_up(story: Document, names: Names) -> list[str]:
    expired = {h.get("member_id"): h for h in story.get("happenings", ()) if h.get("what") == "session expired"}
    found = []
    for who in story.get("held_up_by", ()):
        how = who.get("how", "?")
        if how in ORDINARY and who.get("waited_ms", 0) < NOTABLE_WAIT_MS:
            continue
        if how == "session expired" and (silent := expired.get(who.get("member_id"))):
            how += f" after {_exactly(silent.get('waited_ms'))} of silence"
        found.append(f"held up by {names.with_host(who)}: {how}; the others waited {duration(who.get('waited_ms'))}")
    return found


def _held_back(story: Document) -> list[str]:
    """Why the target of a consumer group, or a part of it, took effect late."""
    found = []
    for row in story.get("held_back", ()):
        count, times = row.get("partitions", 0), row.get("times", 1)
        what = f"{plural(count, 'partition')} " if count else ""
        parts = f", {times} times" if times > 1 else ""
        found.append(f"{what}held back for {duration(row.get('for_ms', 0))} at most: {row.get('why', '?')}{parts}")
    return found


def _told(story: Document) -> str:
    """How the members of a consumer group learned of it; a newcomer learns with the answer to its join."""
    pushed, polled = story.get("pushed", 0), story.get("polled", 0)
    people = (*story.get("members", ()), *story.get("gone", ()))
    if not pushed and not any("told_after_ms" in member.get("steps", {}) for member in people):
        return ""
    parts = [f"{pushed} pushed"] if pushed else []
    parts += [f"{polled} with the member's next heartbeat"] if polled else []
    return f"told: {', '.join(parts)}"


def _further(story: Document, names: Names) -> list[str]:
    """Other events, one line for each kind, except those that `_held_up` names."""
    kinds: dict[str, list[Document]] = {}
    blamed = {who.get("member_id") for who in story.get("held_up_by", ())}
    for happening in story.get("happenings", ()):
        if happening.get("what") in ("session expired", "member removed") and happening.get("member_id") in blamed:
            continue
        kinds.setdefault(happening.get("what", "?"), []).append(happening)
    found = []
    for what, documents in kinds.items():
        count = len(documents) + story.get("more", {}).get(what, 0)
        if what in OF_RECORDS:
            found += [f"also {happened(one, names)}" for one in documents[:SHOWN]]
            found += [f"also {count - SHOWN} × {what} more"] if count > SHOWN else []
        elif count == 1:
            found.append(f"also {happened(documents[0], names, consumers=_is_of_consumer_group(story))}")
        else:
            who = ", ".join(dict.fromkeys(names.of(d) for d in documents[:4] if d.get("member_id")))
            found.append(f"also {count} × {what}{': ' + who if who else ''}{' …' if count > 4 else ''}")
    return found


def _moves(story: Document, names: Names) -> list[Line]:
    moved, taken, released = story.get("moved"), story.get("taken", 0), story.get("released", 0)
    total = story.get("partitions_count")
    if moved is None:
        return []
    parts = [f"{moved} moved"] if moved else []
    parts += [f"{taken} newly assigned"] if taken else []
    parts += [f"{released} given up"] if released else []
    if not parts:
        return [Line(f"no partition moved (of {total})", 4)] if total else []
    lines = [Line(f"of {plural((total or 0) + released, 'partition')}: {', '.join(parts)}", 4)]
    people = (*story.get("members", ()), *story.get("gone", ()))
    by_id = {person.get("member_id", ""): person for person in (*people_of([story]), *people)}
    changed = [member for member in people if member.get("gained") or member.get("lost")]
    for member in changed[:SHOWN_MEMBERS]:
        lines.append(Line(_change(member, names), 6))
        lines += [Line(text, 10) for text in _steps(member.get("steps", {}), by_id, names)]
    if len(changed) > SHOWN_MEMBERS:
        lines.append(Line(f"and {len(changed) - SHOWN_MEMBERS} more members", 6))
    return lines


def _change(member: Document, names: Names) -> str:
    gained, lost = partitions(member.get("gained")), partitions(member.get("lost"))
    changes = [f"+ {gained}"] if gained else []
    changes += [f"− {lost}"] if lost else []
    return f"{names.of(member)}  {'  '.join(changes)}"


def _steps(steps: Document, members: Mapping[str, Document], names: Names) -> list[str]:
    """How a member of a consumer group reached its target."""
    found = []
    if "told_after_ms" in steps:
        found.append(_gave_up(steps))
    waited, got = steps.get("waited_ms"), steps.get("got_after_ms")
    if got is not None:
        by = ", pushed" if steps.get("got_by") == "push" else ""
        whom = ", ".join(names.of(members.get(other, {"member_id": other})) for other in steps.get("waited_for", ()))
        long = f"; waited {duration(waited)} for {whom or 'others'}" if waited is not None else ""
        found.append(f"had all after {duration(got)}{by}{long}")
    return found


def _gave_up(steps: Document) -> str:
    by = "pushed" if steps.get("told_by") == "push" else "with its next heartbeat"
    times = steps.get("times", 1)
    told = f"told after {duration(steps['told_after_ms'])}, {by}"
    if times > 1:
        told = f"told {times} times, first after {duration(steps['told_after_ms'])}, {by}"
    if "revoked_after_ms" not in steps:
        return f"{told}; never said that it gave up"
    return f"{told}; gave up {duration(steps.get('gave_up_in_ms'))} later{' at most' if times > 1 else ''}"


# -- the running rebalance


REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
"""States of a group, in either protocol, in which some members have not reached their target."""
VERBS = {"awaited to join": "to join", "awaited to sync": "to sync", "awaited to revoke": "to give partitions up"}
"""States of members for which the others wait."""


def status_lines(status: Document, names: Names) -> list[Line]:
    """The members that a running rebalance waits for, for how long, and the partitions held back, if there are any."""
    now, phase = status["now_ms"], status["phase"]
    counts = status.get("counts", {})
    awaited = [m for m in status.get("members", ()) if m["state"] in VERBS]
    given_out = [m for m in status.get("members", ()) if m["state"] == "id given out"]
    held_back = _held_back_now(status)
    if phase not in REBALANCING and not awaited and not held_back:
        return []
    why = f" ({status['why']})" if status.get("why") and phase != "Stable" else ""
    ends = status.get("ends_ms")
    still = f", for {duration(max(ends - now, 0))} more at most" if ends is not None else ""
    lines = [Line(f"{phase} for {duration(max(now - status['since_ms'], 0))}{still}{why}{_epochs(status)}", bold=True)]
    if status.get("window"):
        lines.append(Line("more members may come: the group is new, or many come and go", 4))
    done = {
        "joined": ("has joined", "have joined"),
        "synced": ("has synced", "have synced"),
        "on its way": ("learns of it with its next heartbeat", "learn of it with their next heartbeat"),
    }
    for state, (of_one, of_many) in done.items():
        if count := counts.get(state):
            lines.append(Line(f"{plural(count, 'member')} {of_one if count == 1 else of_many}", 4))
    for member in awaited[:SHOWN_MEMBERS]:
        leader = ", the leader" if member.get("leader") and phase == "CompletingRebalance" else ""
        lines.append(Line(f"awaited: {names.with_host(member)}{leader}; {_wait(member)}", 4))
    for member in unheard_of(status)[:SHOWN_MEMBERS]:
        session = f"{duration(member.get('session_remaining_ms'))} more, then its session ends"
        lines.append(Line(f"awaited: {names.with_host(member)}; its next heartbeat, {session}", 4))
    total = sum(counts.get(state, 0) for state in VERBS)
    if total > len(awaited[:SHOWN_MEMBERS]):
        lines.append(Line(f"and {total - SHOWN_MEMBERS} more are awaited", 4))
    lines += _waiting(status, names) + held_back
    if given_out:
        remaining = max(m.get("remaining_ms", 0) for m in given_out)
        count = counts.get("id given out", len(given_out))
        unused = f"{plural(count, 'member id')} given out and not used yet"
        lines.append(Line(f"{unused}, for {duration(remaining)} more", 4))
    return lines


def unheard_of(status: Document) -> list[Document]:
    """Members that do not know yet that others wait for them. One that has died keeps its partitions until its session
    ends."""
    members = status.get("members", ())
    wanted = {other for member in members for other in member.get("waits_for", ())}
    return [member for member in members if member["state"] == "on its way" and member["member_id"] in wanted]


def _epochs(status: Document) -> str:
    if status.get("group_type") != "consumer":
        return ""
    epoch, target = status.get("generation", -1), status.get("assignment_epoch", -1)
    of_target = f", target of epoch {target}" if target != epoch else ""
    by = f" by {status['assignor']}" if status.get("assignor") else ""
    return f"; group epoch {epoch}{of_target}{by}"


def _waiting(status: Document, names: Names) -> list[Line]:
    """Members of a consumer group that lack partitions of their target, and the present owners of those."""
    members = {m["member_id"]: m for m in status.get("members", ())}
    waiting = [m for m in members.values() if m["state"] == "waits for partitions"]
    lines = []
    for member in waiting[:SHOWN_MEMBERS]:
        owners = [names.of(members.get(other, {"member_id": other})) for other in member.get("waits_for", ())]
        of = f" of {', '.join(owners)}" if owners else ", which are free: it gets them with its next heartbeat"
        count = plural(member.get("partitions", 0), "partition")
        lines.append(Line(f"waiting: {names.with_host(member)}, for {count}{of}", 4))
    more = status.get("counts", {}).get("waits for partitions", 0) - len(lines)
    return lines + ([Line(f"and {more} more wait for partitions", 4)] if more > 0 else [])


def _held_back_now(status: Document) -> list[Line]:
    why, until_ms = status.get("held_back"), status.get("held_until_ms")
    count = status.get("held_partitions", 0)
    if not why or not (count or status.get("generation", -1) > status.get("assignment_epoch", -1)):
        return []  # there is nothing to hold back yet
    what = f"{plural(count, 'partition')} held back" if count else "held back"
    remaining = f", {duration(max(until_ms - status['now_ms'], 0))} more" if until_ms is not None else ""
    return [Line(f"{what}: {why}{remaining}", 4)]


def _wait(member: Document) -> str:
    waited, remaining = duration(member.get("waited_ms")), duration(member.get("remaining_ms"))
    session = member.get("session_remaining_ms")
    by_session = session is not None and session == member.get("remaining_ms")
    end = "then its session ends" if by_session else "then it is removed"
    verb = VERBS[member["state"]]
    if member.get("partitions"):
        verb = verb.replace("partitions", plural(member["partitions"], "partition"))
    return f"{verb}, {waited} so far, {remaining} more, {end}"
