"""Random ACLs and requests: the decisions of Apache Kafka's StandardAuthorizer and of kohort.

`python tests/peers/acl_decisions.py --decisions 100000 --seed 7` (`make peers-acls`) compares them. A run is a list of
lines (AclDecisions.java says which); both sides carry them out. ACLs come and go between the requests, so a decision
that kohort keeps for too long is found too.

Left out is what differs on purpose (docs/differences.md): hosts of ACLs as networks, which are in Kafka's trunk but in
no release of Maven's, and IPv6 addresses in another form than Java's.
"""

from __future__ import annotations

import argparse
import ipaddress
import random
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent), *(str(TESTS / folder) for folder in ("java", "clients", "client_library"))]

import java_libraries  # noqa: E402
from bench import _kafka  # noqa: E402
from run_java import java  # noqa: E402

from kohort.broker.authorization import CLUSTER_NAME, Operation, Principal, Resource  # noqa: E402
from kohort.broker.security.acls import ALLOW, DENY, LITERAL, OPERATIONS, PREFIXED, Acl, Acls  # noqa: E402
from kohort.broker.security.authorizer import AclAuthorizer, authorizer_of  # noqa: E402
from kohort.config import AUTHORIZER, Config  # noqa: E402

PROGRAM = Path(__file__).with_name("AclDecisions.java")
NAMES = ["a", "ab", "abc", "abd", "b", "a.b", "A", "+", "ä", "a\U0001f600", "h", "hardcode", "*"]
"""`hardcode` is the name that Kafka's authorizeByResourceType asks about; `+` comes behind `*` in Kafka's order."""
ASKED = [*NAMES, "abcd", "a*", "äb", "zz", ""]
PRINCIPALS = ["User:a", "User:b", "User:a:b", "Team:a"]
HOSTS = ["10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1"]
"""As Java writes them."""
SUPER_USERS = ["", "", "User:root", "User:b; Team:a", "User:*"]
ASKED_OF_A_SET = 25
MOST_ACLS = 12

Line = tuple[str, ...]


def runs(decisions: int, seed: int) -> list[Line]:
    """Lines with this many requests."""
    chance = random.Random(seed)
    lines: list[Line] = []
    while decisions > 0:
        asked = min(decisions, ASKED_OF_A_SET)
        lines += _run(chance, asked)
        decisions -= asked
    return lines


def _run(chance: random.Random, asked: int) -> Iterator[Line]:
    yield "new", chance.choice(["true", "false"]), chance.choice(SUPER_USERS)
    names, types = chance.sample(NAMES, 4), chance.sample(list(Resource), 2)
    present: dict[Line, str] = {}
    number = 0
    for _ in range(chance.randint(0, MOST_ACLS)):
        if (acl := _acl(chance, names, types)) not in present:
            present[acl] = str(number)
            yield "add", str(number), *acl
            number += 1
    for _ in range(asked):
        yield _request(chance, names, types)
        if present and chance.random() < 0.1:
            yield "gone", present.pop(chance.choice(list(present)))


def _acl(chance: random.Random, names: list[str], types: list[Resource]) -> Line:
    resource = chance.choice([*types, *types, 7])
    return (
        str(int(resource)),
        CLUSTER_NAME if resource == Resource.CLUSTER else chance.choice(names),
        str(chance.choice([LITERAL, PREFIXED])),
        chance.choice([*PRINCIPALS, "User:*", "User:*", "Team:*"]),
        chance.choice(["*", *HOSTS]),
        str(chance.choice(sorted(OPERATIONS))),
        str(chance.choice([ALLOW, ALLOW, DENY])),
    )


def _request(chance: random.Random, names: list[str], types: list[Resource]) -> Line:
    who = chance.choice([*PRINCIPALS, "User:root"]), chance.choice([*HOSTS, "10.0.0.3"])
    resource = chance.choice(types)
    what = str(int(chance.choice(list(Operation)))), str(int(resource))
    if chance.random() < 0.25:
        return "any", *who, *what
    name = CLUSTER_NAME if resource == Resource.CLUSTER else chance.choice([*names, chance.choice(ASKED)])
    return "ask", *who, *what, name


def of_kafka(lines: list[Line]) -> list[str]:
    """A letter for each request: A allowed, D denied."""
    class_path = java_libraries.kafka()

    def compile_into(folder: Path) -> None:
        _kafka.compile_java(PROGRAM, class_path, folder)

    compiled = java_libraries.kept("acl-decisions", [_kafka.JAVA / "pom.xml", PROGRAM], compile_into)
    feed = "".join("\t".join(line) + "\n" for line in lines)
    return java(f"{compiled}:{class_path}", "AclDecisions", feed=feed).split()


def of_kohort(lines: list[Line]) -> list[str]:
    decisions: list[str] = []
    acls, authorizer = Acls(), None
    for what, *words in lines:
        match what:
            case "new":
                acls, authorizer = Acls(), None
                authorizer = _authorizer(acls, everyone=words[0] == "true", super_users=words[1])
            case "add":
                number, resource, name, pattern, principal, host, operation, permission = words
                codes = int(resource), int(pattern), int(operation), int(permission)
                acls.put(number, Acl(codes[0], name, codes[1], principal, host, codes[2], codes[3]))
            case "gone":
                acls.remove(words[0])
            case _:
                assert authorizer is not None
                decisions.append("A" if _decided(authorizer, *words) else "D")
    return decisions


def _authorizer(acls: Acls, *, everyone: bool, super_users: str) -> AclAuthorizer:
    config = Config(authorizer_class_name=AUTHORIZER, super_users=super_users, allow_everyone_if_no_acl_found=everyone)
    found = authorizer_of(config, acls)
    assert found is not None
    return found


def _decided(authorizer: AclAuthorizer, who: str, host: str, operation: str, resource: str, *name: str) -> bool:
    kind, _, user = who.partition(":")
    asked = Principal(user, kind), str(ipaddress.ip_address(host)), Operation(int(operation)), Resource(int(resource))
    return authorizer.allows(*asked, name[0]) if name else authorizer.allows_any(*asked)


def differences(decisions: int, seed: int) -> list[str]:
    """For each request that is decided differently, its set: settings, ACLs in order, and the request."""
    lines = runs(decisions, seed)
    kafka, kohort = of_kafka(lines), of_kohort(lines)
    assert len(kafka) == len(kohort) == decisions
    found: list[str] = []
    story: list[Line] = []
    answers = zip(kafka, kohort, strict=True)
    for line in lines:
        if line[0] == "new":
            story.clear()
        if line[0] not in ("ask", "any"):
            story.append(line)
            continue
        theirs, ours = next(answers)
        if theirs != ours:
            told = "\n".join("  " + " ".join(each) for each in (*story, line))
            found.append(f"Kafka {theirs}, kohort {ours}:\n{told}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    found = differences(options.decisions, seed)
    print("\n\n".join(found[:10]))
    print(f"{options.decisions} decisions, seed {seed}: {len(found)} differ from Apache Kafka's")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
