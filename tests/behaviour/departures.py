"""Known differences in random sequences: each rule is narrow and cites a row of docs/differences.md.

`before` finds commands that leave the two servers in different states; later commands are not compared. `between` and
`after` find the reason why two answers differ. Most differences end the sequence; those in `LOCAL` change only the
answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lanes import STRICT, USUAL, Lane
from shard_world import ShardWorld

from kohort.coordinator.classic.protocol_vote import candidates
from kohort.coordinator.consumer.classic_fields import is_classic
from kohort.coordinator.consumer.reconciliation import Reconciliation

TOPICS = {"t": 6, "u": 3, "w": 60}
"""The topics that commits of random sequences name, and their number of partitions."""

VOTED_ON = r" (protocol_name='[^']*'|metadata=\S+)"
"""Fields of an answer that depend on the chosen protocol."""

OF_TARGETS = ("beat", "join", "sync", "heartbeat", "list", "describe")
"""Commands that need a target assignment, or whose answers depend on one."""

LOCAL = ("pending-static", "client-of-member", "who-assigned")


@dataclass(frozen=True)
class _Words:
    verb: str
    group: str
    names: tuple[str, ...]
    options: dict[str, str]


def lane_of(world: ShardWorld) -> Lane:
    return STRICT if world.settings.get("compatibility") == STRICT.compatibility else USUAL


def _read(command: str) -> _Words:
    verb, *words = command.split()
    options = dict(word.split("=", 1) for word in words if "=" in word and "-" not in word.split("=")[0])
    group, *names = [word for word in words if word.split("=")[0] not in options] or [""]
    return _Words(verb, "" if group == "''" else group, tuple(names), options)


def before(world: ShardWorld, command: str) -> str:
    """The known difference that the command causes in this state; "" for none."""
    return _of_lane(world, _before(world, command))


def _of_lane(world: ShardWorld, known: str) -> str:
    """The difference, if the world's lane may show it."""
    return known if known in lane_of(world).ids else ""


def _before(world: ShardWorld, command: str) -> str:
    words = _read(command)
    match words.verb:
        case "leave":
            return _leaving(world, words)
        case "join":
            return _joining(world, words)
        case "sync":
            return _syncing(world, words)
        case "beat":
            return _beating(world, words)
        case "commit" | "delete-offsets":
            return _emptying(world, words)
        case _:
            return ""


def between(world: ShardWorld, command: str, kafka: Sequence[str], kohort: Sequence[str], departed: bool) -> str:
    """The known difference between two answers; "" if there is none. `world` is as it was before the command.
    `departed`: a member left the group, and no member of the consumer protocol has heartbeated since."""
    return _of_lane(world, _between(world, command, kafka, kohort, departed))


def _between(world: ShardWorld, command: str, kafka: Sequence[str], kohort: Sequence[str], departed: bool) -> str:
    words = _read(command)
    both_answered = bool(kafka and kohort)
    if (
        departed
        and both_answered
        and words.verb.split("-")[0] in OF_TARGETS
        and world.shard.consumers.groups
        and errors(kafka) == errors(kohort)
    ):
        return "departure-target"
    theirs, ours = (_own(words, lines) for lines in (kafka, kohort))
    if words.verb == "beat" and "error=" not in ours:
        return _of_heartbeat(world, words, theirs, ours)
    if (
        words.verb == "join"
        and "error=23" in theirs
        and "error=25" in ours
        and _is_of_offsets_alone(world, words.group)
    ):
        return "offsets-alone"
    if words.verb == "join" and words.group in world.shard.consumers.groups:
        if "error=-1" in theirs and "error=23" in ours:
            return "unreadable-join"
        if "generation_id=0 " in theirs and "generation_id=" in ours:
            return "downgrade-generation"
    if words.verb == "beat" and "error=69" in theirs and "error=25" in ours:
        return "former-group"
    if words.verb == "commit":
        group = world.shard.running.groups.get(words.group)
        member = group.members.get(_member_id(world, words)) if group is not None else None
        if member is not None and member.is_new and "error=22" in ours:
            return "new-member-commits"
        theirs_all, ours_all = (Counter(re.findall(r"error=(\d+)", answer)) for answer in (theirs, ours))
        is_consumers = words.group in world.shard.consumers.groups
        if is_consumers and "82" in ours_all and set(ours_all) <= {"82", "3", "100"}:
            return "commit-instance"
        if is_consumers and _is_refused_as_a_whole(words, theirs_all, ours_all):
            return "stale-commit"
        if is_consumers and not theirs_all and set(ours_all) == {"22"} and _has_joined_again(world, words):
            return "classic-timeouts"
    if words.verb == "delete-offsets":
        group = world.shard.running.groups.get(words.group)
        if group is not None and group.phase.value == "PreparingRebalance" and "error=86" in theirs + ours:
            return "subscribed-in-rebalance"
    if words.verb.startswith("describe"):
        for known, field in (("client-of-member", "client_id"), ("who-assigned", "assignor_name")):
            if _without(field, kafka) == _without(field, kohort):
                return known
    return ""


def after(world: ShardWorld, command: str, kafka: Sequence[str], kohort: Sequence[str]) -> str:
    """The same for differences that only the state after the command explains."""
    group = world.shard.running.groups.get(_read(command).group)
    chosen = [set(re.findall(r"protocol_name='([^']*)'", " ".join(lines))) for lines in (kafka, kohort)]
    if group is None or any(len(names) != 1 for names in chosen):
        return ""
    if re.sub(VOTED_ON, "", "\n".join(kafka)) != re.sub(VOTED_ON, "", "\n".join(kohort)):
        return ""
    theirs, ours = (names.pop() for names in chosen)
    names = candidates(group)
    votes = Counter(next(name for name in m.protocol_names if name in names) for m in group.members.values())
    return "vote-tie" if theirs != ours and votes[theirs] == votes[ours] else ""


def _is_of_offsets_alone(world: ShardWorld, group_id: str) -> bool:
    return group_id not in world.shard.running.groups and bool(world.shard.hard.offsets.get(group_id))


def _of_heartbeat(world: ShardWorld, words: _Words, theirs: str, ours: str) -> str:
    """kohort answers a heartbeat with a wrong epoch with the member's present state."""
    group = world.shard.consumers.groups.get(words.group)
    member_id = _member_id(world, words)
    if group is None or member_id not in group.members:
        return ""
    epoch = group.state_of(member_id).member_epoch
    said = int(words.options.get("epoch", world.names[words.group, words.names[0]].consumer.epoch))
    if said == epoch:
        return ""
    if not said and "error=111" in theirs and group.members[member_id].instance_id:
        return "static-rejoin"
    if said and "error=110" in theirs:
        return "stale-epoch"
    if "error=" in theirs or _epoch_in(ours) != epoch:
        return ""
    is_told_all = bool(said) and "assignment=" in ours
    if not is_told_all and _epoch_in(theirs) <= epoch:
        return ""
    return "stale-epoch" if said else "join-acknowledges"


def _is_refused_as_a_whole(words: _Words, theirs: Counter[str], ours: Counter[str]) -> bool:
    """Kafka refuses the commit of all partitions because one of them is no longer the member's."""
    return "gen" in words.options and any(
        0 < ours[stale] < theirs[stale] and ours[stale] + ours["12"] <= theirs[stale]
        for stale in ("113", "22")
        if set(theirs) <= {stale, "3", "100"} and set(ours) <= {stale, "12", "3", "100"}
    )


def _has_joined_again(world: ShardWorld, words: _Words) -> bool:
    """True if a member of the classic protocol names a former generation: joining again cost it its partitions."""
    group = world.shard.consumers.groups[words.group]
    member_id = _member_id(world, words)
    member = group.members.get(member_id)
    if member is None or not is_classic(member):
        return False
    return int(words.options.get("gen", "-1")) < group.state_of(member_id).member_epoch


def _epoch_in(answer: str) -> int:
    found = re.search(r"member_epoch=(\d+)", answer)
    return int(found[1]) if found is not None else 0


def errors(lines: Sequence[str]) -> list[str]:
    """All error codes except 27, with which a member learns of a new target."""
    return sorted(error for line in lines for error in re.findall(r"error=(-?\d+)", line) if error != "27")


def _without(field: str, lines: Sequence[str]) -> list[str]:
    return [re.sub(rf" {field}='[^']*'", "", line) for line in lines]


def _own(words: _Words, lines: Sequence[str]) -> str:
    """The answer to the command itself, without the answers to parked requests before it."""
    if words.verb == "delete-offsets":
        return " ".join(lines)
    name = words.names[0] if words.names else "operator"
    found = [number for number, line in enumerate(lines) if line.startswith(f"{name} ")]
    return " ".join(lines[found[-1] :]) if found else ""


def _emptying(world: ShardWorld, words: _Words) -> str:
    """After an empty commit to an unknown group, or the deletion of the last offset of a group without members, Kafka
    has a group of that name until its next sweep."""
    if words.group in world.shard.running.groups or words.group in world.shard.consumers.groups or not words.group:
        return ""
    offsets = world.shard.hard.offsets.get(words.group, {})
    # A server refuses unknown partitions. An offset that was committed by a topic's id has no topic name here.
    known = [(topic, index) for topic, index in offsets if not topic or index < TOPICS.get(topic, 0)]
    if words.verb == "delete-offsets":
        named = {tuple(place.rsplit("-", 1)) for place in words.names}
        indexes = {place[-1] for place in named}
        gone = [(topic, str(index)) in named or (not topic and str(index) in indexes) for topic, index in known]
        return "empty-group" if known and all(gone) else ""
    return "" if known or any(map(_is_kept, words.names[1:])) else "empty-group"


def _is_kept(offset: str) -> bool:
    """True if this offset is stored, in a commit that is not refused as a whole."""
    topic, _, rest = offset.rpartition("-")
    index, _, value = rest.partition("=")
    return int(index) < TOPICS.get(topic, 0) and ":*" not in value


def _leaving(world: ShardWorld, words: _Words) -> str:
    group = world.shard.running.groups.get(words.group)
    if group is None:
        return _downgrading(world, words)
    known = [world.names[words.group, name] for name in words.names if (words.group, name) in world.names]
    ids = [who.member_id for who in known if who.member_id]
    static = {words.options.get("instance", ""), *(who.instance for who in known if not who.member_id)} - {"", None}
    ids += [member.member_id for member in group.members.values() if _instance(member) in static]
    if any(member_id in group.pending for member_id in ids):
        return "pending-leaves"
    if any(member_id in group.members and group.members[member_id].sync is not None for member_id in ids):
        return "leaver-sync"
    staying = group.members.keys() - set(ids)
    if group.members and not staying and group.pending:
        return "pending-alone"
    if group.leader in ids and len(staying) > 1:
        return "next-leader"
    return ""


def _instance(member: object) -> str | None:
    return getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None)


def _member_id(world: ShardWorld, words: _Words) -> str:
    name = words.names[0] if words.names else ""
    known = world.names.get((words.group, name))
    return words.options.get("id", known.member_id if known is not None else "").replace("''", "")


def _joining(world: ShardWorld, words: _Words) -> str:
    group = world.shard.running.groups.get(words.group)
    member_id, version = _member_id(world, words), int(words.options.get("v", "9"))
    consumers = world.shard.consumers.groups.get(words.group)
    if consumers is not None:
        if not consumers.members:
            return "numbers-go-on"
        return _downgrading(world, words, words.options.get("instance", ""))
    if group is None:
        if "" in (words.options.get("protocols"), words.options.get("type", "consumer").strip("'")) and not member_id:
            return "refused-join-founds"
        return "numbers-go-on" if world.shard.hard.generations.get(words.group) and not member_id else ""
    known = world.names.get((words.group, words.names[0] if words.names else ""))
    static = "instance" in words.options or (known is not None and known.instance is not None)
    if member_id in group.pending and version >= 5 and static:
        return "pending-static"
    member = group.members.get(member_id)
    return "parked-replaced" if member is not None and (member.join or member.sync) is not None else ""


def _syncing(world: ShardWorld, words: _Words) -> str:
    group = world.shard.running.groups.get(words.group)
    member = group.members.get(_member_id(world, words)) if group is not None else None
    return "parked-replaced" if member is not None and member.sync is not None else ""


def _beating(world: ShardWorld, words: _Words) -> str:
    classic = world.shard.running.groups.get(words.group)
    consumers = world.shard.consumers.groups.get(words.group)
    name = words.names[0] if words.names else ""
    known = world.names.get((words.group, name))
    epoch = int(words.options.get("epoch", known.consumer.epoch if known is not None else 0))
    member_id = words.options.get("id", name)
    if classic is not None and epoch == 0:
        if not classic.members:
            return "numbers-go-on"
        return "upgrade-unsettled" if classic.phase.value != "Stable" else ""
    if consumers is not None and member_id in consumers.members and is_classic(consumers.members[member_id]):
        return "classic-heartbeats"
    if consumers is None:
        return "numbers-go-on" if epoch == 0 and world.shard.hard.generations.get(words.group) else ""
    if epoch < 0:
        return _downgrading(world, words) if epoch == -1 else ""
    if epoch == 0 and member_id in consumers.members:
        state = consumers.state_of(member_id)
        behind = state.state is Reconciliation.UNREVOKED_PARTITIONS or state.member_epoch != consumers.assignment_epoch
        return "join-acknowledges" if behind else ""
    return ""


def _downgrading(world: ShardWorld, words: _Words, instance: str = "") -> str:
    """The difference if the last members of the consumer protocol leave or turn classic, and classic ones stay."""
    group = world.shard.consumers.groups.get(words.group)
    if group is None:
        return ""
    going = {world.names[words.group, name].member_id for name in words.names if (words.group, name) in world.names}
    going |= {words.options.get("id", ""), group.instances.get(words.options.get("instance", instance), "")}
    staying = [member for member_id, member in group.members.items() if member_id not in going]
    gone = [member for member_id, member in group.members.items() if member_id in going]
    if all(map(is_classic, staying)) and not all(map(is_classic, gone)) and (staying or words.verb == "join"):
        return "numbers-go-on"
    return ""
