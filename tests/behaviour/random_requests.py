"""Sequences of requests by chance, in the words of scenario files: a seed makes a sequence.

The kinds: classic groups, with or without static members; consumer groups and groups of both protocols, of static
members and with `range`, where it is certain who gets which partition; such groups of members that have a topic each;
and groups that settle after each change, of members with and without an instance id, where as many partitions move,
whichever they are. Members mostly do what a client would do next, and otherwise ask for what is late, wrong or out of
order: generations and epochs that are over or not there yet, ids and instances of nobody or of somebody else, other
protocols, commits and fetches of strangers, deletions and departures of others, and each request in any of its
versions. Nothing waits: what a server does by its clock is for the scenarios.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import departures
from guide import Guide, Hints
from lanes import USUAL, Lane

SETTINGS = (
    "config group_initial_rebalance_delay_ms=0 group_consumer_assignment_interval_ms=0 group_storm_rebalance_delay_ms=0"
    " group_heartbeat_hold_enable=0"
)
OWN = {"a": "ta", "b": "tb", "x": "tx", "y": "ty"}
TOPICS = {"t": 6, "u": 3, "w": 60} | dict.fromkeys(OWN.values(), 2)
KINDS = ("classic", "static", "consumer", "mixed", "own", "settled")
NAMES = "abcd"
CONSUMERS = "xyz"
RARELY = 0.95
OWNED = (" owned=none", " owned=null", " owned=t:0+1", " owned=t:5")


class _Making:
    """A sequence while it is made: the guide runs along, to say what is worth saying next."""

    def __init__(self, seed: int, lane: Lane) -> None:
        self.random = random.Random(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.guide = Guide(prompt=True, lane=lane)
        self.commands: list[str] = []
        self.static: set[str] = set()
        """Names with an instance id, if only some have one."""
        self.say(SETTINGS)
        self.say("topics " + " ".join(f"{name}={count}" for name, count in TOPICS.items()))

    def say(self, command: str) -> None:
        self.commands.append(command)
        self.guide.play(command)


def sequence(seed: int, length: int = 0, lane: Lane = USUAL) -> tuple[list[str], Hints, bool]:
    """The commands of a seed, the hints to run them by, and whether partitions are compared exactly."""
    made = _Making(seed, lane)
    steps = length or made.random.randrange(12, 36)
    story = _settling(made) if made.kind == "settled" else iter(lambda: _command(made), "")
    while len(made.commands) < steps + 2 and made.guide.hints.departs_at < 0:
        command = _in_full(made, next(story))
        if departures.before(made.guide, command) and made.random.random() < RARELY:
            continue  # the servers' states differ from there on, and nothing later is compared
        made.say(command)
        if made.guide.departed and (name := _alive(made)):
            made.say(_in_full(made, f"beat g {name}"))  # in Kafka a departure counts with the next heartbeat
    return made.commands, made.guide.hints, made.kind != "settled"


def replay(commands: Sequence[str], lane: Lane = USUAL) -> Hints:
    """The hints for a part of a sequence. Raises what the guide raises where it makes no sense."""
    guide = Guide(prompt=True, lane=lane)
    for command in commands:
        guide.play(command)
    return guide.hints


def _alive(made: _Making) -> str:
    """A member of the consumer protocol that may heartbeat."""
    group = made.guide.shard.consumers.groups.get("g")
    for (of, name), who in made.guide.names.items():
        if of == "g" and group is not None and who.consumer.epoch > 0 and who.consumer.member_id in group.members:
            return name
    return ""


def _in_full(made: _Making, command: str) -> str:
    """Add id and instance id to a heartbeat, so that an earlier wrong one is not repeated. Add the member's own topic
    to a join, if members have one each."""
    verb, *words = command.split()
    if verb == "join" and made.kind == "own" and "protocols=" not in command:
        return f"{command} protocols=range:{OWN[words[1]]}"
    if verb != "beat":
        return command
    own = _instance(made, words[1]).strip() or "instance=null"
    said = {word.partition("=")[0] for word in words}
    joins = made.guide.client(words[0], words[1]).consumer.epoch == 0 and "epoch" not in said
    by_range = joins and "assignor" not in said and made.kind in ("consumer", "mixed")
    more = [f"id={words[1]}"] * ("id" not in said) + [own] * ("instance" not in said) + ["assignor=range"] * by_range
    if joins and made.kind == "own" and "topics" not in said:
        more.append(f"topics={OWN[words[1]]}")
    return " ".join([command, *more])


# -- what is said next


def _command(made: _Making) -> str:
    chance = made.random
    if chance.random() < 0.14:
        return _of_operators(made)
    classic = made.kind in ("classic", "static") or (made.kind in ("mixed", "own") and chance.random() < 0.5)
    several = {"own": ("ab", "xy"), "mixed": ("abc", "xyz")}.get(made.kind, (NAMES, CONSUMERS))
    names = [name for name in several[not classic] if not made.guide.client("g", name).parked]
    if not names:
        return _of_operators(made)
    name = chance.choice(names)
    if classic:
        return _next_of_classic(made, name) if chance.random() < 0.6 else _odd_of_classic(made, name)
    return _next_of_consumer(made, name) if chance.random() < 0.6 else _odd_of_consumer(made, name)


def _instance(made: _Making, name: str) -> str:
    static = made.kind in ("static", "consumer", "mixed") or name in made.static
    return f" instance=i{name}" if static else ""


def _join(made: _Making, name: str) -> str:
    chance = made.random
    instance = _instance(made, name)
    version = chance.choice((9, 9, 9, 8, 7, 6, 5) if instance else (9, 9, 9, 7, 5, 4, 3, 2, 1, 0))
    protocols = chance.choice(("range:t", "range:t", "range:t", "range:t,sticky:t", "range:t+u"))
    if made.kind in ("own", "settled"):
        protocols = f"range:{OWN.get(name, 'w')}"
    return f"join g {name} v={version} protocols={protocols} session=60s rebalance=60s{instance}"


def _sync(made: _Making, name: str) -> str:
    version = made.random.choice((5, 5, 5, 4, 3, 2, 1, 0))
    share = ",".join(f"{other}:@t:{number}" for number, other in enumerate(NAMES))
    return f"sync g {name} v={version} assign={share}"


def _next_of_classic(made: _Making, name: str) -> str:
    chance, guide = made.random, made.guide
    who = guide.client("g", name)
    members = _members(guide)
    if not who.member_id or who.member_id not in members:
        return _join(made, name)
    phase = _phase(guide)
    if phase == "PreparingRebalance":
        return chance.choice((_join(made, name), _join(made, name), f"heartbeat g {name} v={chance.randrange(5)}"))
    if phase == "CompletingRebalance":
        return _sync(made, name)
    usual = [f"heartbeat g {name} v={chance.randrange(5)}"] * 3
    usual += [f"commit g {name} t-{chance.randrange(3)}={chance.randrange(100)} v={chance.randrange(2, 11)}"] * 3
    usual += [_sync(made, name), f"leave g {name} v={chance.randrange(6)}", _join(made, name)]
    return chance.choice(usual)


def _odd_of_classic(made: _Making, name: str) -> str:
    chance, guide = made.random, made.guide
    generation = guide.client("g", name).generation
    other = chance.choice([n for n in NAMES if n != name])
    stranger = chance.choice(("stranger", guide.client("g", other).member_id or "stranger", "''"))
    gen = max(0, generation + chance.choice((-2, -1, 1, 5)))
    instance = chance.choice((f"i{name}", f"i{other}", "nobody"))
    protocols = ("other:t", "sticky:t,range:t", "range:u", "")
    if made.kind == "own":
        protocols = (f"other:{OWN[name]}", "")
    odd: list[Callable[[], str]] = [
        lambda: f"heartbeat g {name} gen={gen}",
        lambda: f"heartbeat g {name} id={stranger} v={chance.randrange(5)}",
        lambda: f"heartbeat g {name} instance={instance} v={chance.randrange(3, 5)}",
        lambda: f"heartbeat h {name} gen=1 id=stranger",
        lambda: f"sync g {name} gen={gen} v={chance.randrange(6)}",
        lambda: f"sync g {name} id={stranger} gen={gen} v={chance.randrange(5)}",
        lambda: f"sync g {name} type={chance.choice(('null', 'connect', 'consumer'))} v=5",
        lambda: f"sync g {name} protocol={chance.choice(('null', 'other', 'range'))} v=5",
        lambda: f"sync h {name} id=stranger gen=1 type=consumer protocol=range",
        lambda: f"join g {name} id={stranger} v={chance.randrange(10)}",
        lambda: f"join g {name} type={chance.choice(('connect', 'consumer'))}",
        lambda: f"join g {name} protocols={chance.choice(protocols)}",
        lambda: f"join g {name} session={chance.choice(('1s', '1800001ms'))}",
        lambda: f"join '' {name}",
        lambda: f"leave g {other} v={chance.randrange(6)}",
        lambda: f"leave g {name} {other} nobody",
        lambda: f"leave g instance={instance}",
        lambda: f"leave h {name} v={chance.randrange(6)}",
        *_odd_commits(made, name, gen, stranger, instance),
    ]
    return chance.choice(odd)()


def _odd_commits(made: _Making, name: str, gen: int, stranger: str, instance: str) -> list[Callable[[], str]]:
    chance = made.random
    offset = f"t-{chance.randrange(8)}={chance.randrange(100)}"
    more = chance.choice(("", " u-1=7:meta", " nope-0=1", " t-5=3:*5000", " t-4=2:null"))
    version = chance.randrange(2, 11)
    return [
        lambda: f"commit g {name} {offset}{more} gen={gen} v={version}",
        lambda: f"commit g {name} {offset}{more} gen=-1 v={version}",
        lambda: f"commit g {name} {offset} id={stranger} v={version}",
        lambda: f"commit g {name} {offset} instance={instance} v={chance.randrange(7, 11)}",
        lambda: f"commit g - {offset}{more} v={version}",
        lambda: f"commit h - {offset}{more} v={version}",
        lambda: f"commit h {name} {offset} gen={gen} id=stranger v={version}",
    ]


def _next_of_consumer(made: _Making, name: str) -> str:
    chance, guide = made.random, made.guide
    who = guide.client("g", name).consumer
    group = guide.shard.consumers.groups.get("g")
    if group is None or who.member_id not in group.members or not who.epoch:
        return _begin(made, name)
    usual = [f"beat g {name}"] * 6
    usual += [f"commit g {name} t-{chance.randrange(3)}={chance.randrange(100)} v={chance.randrange(9, 11)}"] * 2
    usual += [f"beat g {name} epoch=-1", f"fetch g {chance.choice(('all', 't-0 t-1'))} as={name}"]
    if _instance(made, name):
        usual.append(f"beat g {name} epoch=-2")
    return chance.choice(usual)


def _begin(made: _Making, name: str) -> str:
    chance = made.random
    topics, assignor = chance.choice(("t", "t", "t+u", "u")), " assignor=range"
    if made.kind in ("own", "settled"):
        topics, assignor = OWN.get(name, "w"), ""
    return f"beat g {name} epoch=0 topics={topics}{assignor}{_instance(made, name)}"


def _odd_of_consumer(made: _Making, name: str) -> str:
    chance, guide = made.random, made.guide
    epoch = guide.client("g", name).consumer.epoch
    wrong = max(1, epoch + chance.choice((-2, -1, 1, 5)))
    other = chance.choice([n for n in CONSUMERS if n != name])
    stranger = chance.choice(("stranger", other))
    instance = chance.choice((f"i{name}", f"i{other}", "nobody"))
    owned = chance.choice(OWNED) if made.kind in ("consumer", "mixed") else ""
    odd: list[Callable[[], str]] = [
        lambda: f"beat g {name} epoch={wrong}{owned}",
        lambda: f"beat g {name} epoch={wrong} id=stranger",
        lambda: f"beat g {name} epoch=-1 id=stranger",
        lambda: f"beat g {name} epoch=-2 instance=nobody id=stranger",
        lambda: f"beat h {name} epoch={wrong}",
        lambda: f"beat h {name} epoch=-1",
        lambda: f"beat g {name}{owned}",
        lambda: f"beat g {name} rebalance=30s topics={OWN.get(name, 't')} owned=none",
        lambda: f"beat g {name} epoch=-3",
        lambda: f"beat g {name} assignor=alphabetical",
        lambda: f"beat g {name} epoch=0 rebalance=-1",
        lambda: f"beat g {name} rack=''",
        lambda: f"beat '' {name}",
        lambda: f"heartbeat g {name} id={stranger} gen={wrong}",
        lambda: f"sync g {name} id={stranger} gen={wrong} type=consumer protocol=range",
        lambda: f"leave g {name} v={chance.randrange(6)}",
        lambda: f"fetch g all as={name} epoch={wrong}",
        lambda: f"fetch g all id=stranger epoch={wrong} v=9",
        *_odd_commits(made, name, wrong, stranger, instance),
    ]
    return chance.choice(odd)()


def _settling(made: _Making) -> Iterator[str]:
    """One change at a time, then heartbeats until nothing moves, and requests that change nothing."""
    chance, guide = made.random, made.guide
    kinds = {name: chance.choice(("consumer", "static", "classic")) for name in "bcdef"} | {"a": "consumer"}
    made.static.update(name for name, kind in kinds.items() if kind == "static")
    present: list[str] = []
    while True:
        if not present or (len(present) < len(kinds) and chance.random() < 0.6):
            name = chance.choice([n for n in kinds if n not in present]) if present else "a"
            present.append(name)
            if kinds[name] == "classic":
                yield f"join g {name} v=3 protocols=range:w session=60s rebalance=60s"
                yield f"sync g {name}"
            else:
                yield f"beat g {name} epoch=0 topics=w"
        elif len(present) > 1:
            name = chance.choice(present[1:])
            present.remove(name)
            yield f"leave g {name}" if kinds[name] == "classic" else f"beat g {name} epoch=-1"
        for _ in range(4):
            for name in present:
                if kinds[name] == "classic":
                    yield from _go_on(guide, name)
                else:
                    yield f"beat g {name}"
        for _ in range(chance.randrange(3)):
            yield _of_operators(made, harmless=True)
            name = chance.choice(present)
            if kinds[name] == "consumer":
                yield f"beat g {name} epoch={guide.client('g', name).consumer.epoch + chance.choice((1, 5))}"
                yield f"beat g {name}"
                yield f"commit g {name} w-0=5 v=9 gen={guide.client('g', name).generation + chance.choice((0, 1))}"


def _go_on(guide: Guide, name: str) -> Iterator[str]:
    yield f"heartbeat g {name}"
    if guide.must_rejoin:
        yield f"join g {name}"
        yield f"sync g {name}"


def _of_operators(made: _Making, harmless: bool = False) -> str:
    chance = made.random
    group = "h" if harmless else chance.choice("ggggh")
    if harmless and chance.random() < 0.5:
        return chance.choice(("describe g", "describe-consumer g", "list", "fetch g all", "list states=Stable"))
    return chance.choice(
        (
            f"describe {group} v={chance.randrange(7)}",
            f"describe-consumer {group} v={chance.randrange(2)}",
            f"list v={chance.randrange(6)}",
            f"list states={chance.choice(('Stable', 'EMPTY', 'PreparingRebalance,Stable', 'nonsense'))}",
            f"list types={chance.choice(('classic', 'Consumer'))}",
            f"fetch {group} all v={chance.randrange(2, 11)}",
            f"fetch {group} t-0 t-1 u-0 v={chance.randrange(1, 11)}",
            f"fetch {group} none v={chance.randrange(2, 11)}",
            f"delete-offsets {group} t-{chance.randrange(3)} u-0",
            f"delete {group}",
            f"delete {group} h nothing",
            f"commit {group} - t-0=1 u-0=2 v={chance.randrange(2, 11)}",
            f"leave {group} instance=nobody",
        )
    )


# -- what the guide knows


def _members(guide: Guide) -> set[str]:
    group = guide.shard.running.groups.get("g")
    consumers = guide.shard.consumers.groups.get("g")
    found = set(group.members) | set(group.pending) if group is not None else set()
    return found | (set(consumers.members) if consumers is not None else set())


def _phase(guide: Guide) -> str:
    group = guide.shard.running.groups.get("g")
    return group.phase.value if group is not None else ""
