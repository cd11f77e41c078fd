"""docs/clients.md: the results of the cells of a run."""

from __future__ import annotations

import os
import platform
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from matrix_clients import CLIENTS, FEATURES, Client

import kohort

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
PASSED, FAILED, ABSENT, NOT_RUN = "✓", "✗", "–", "not run"

MEANINGS = {
    "none … zstd": "20 records with keys and headers, produced to two partitions with this compression. Each is in the "
    "log once, in order and unchanged, and its batch has this compression.",
    "idempotent": "The answer to a Produce is lost and its connection is cut. The client sends the batch again, "
    "and the log has each record once.",
    "read": "Records of every compression, read from the beginning; without a group, if the client can.",
    "hand-over": "Two members share six partitions; one leaves, another joins, one is killed with SIGKILL. Each time "
    "every partition has one owner, and in the end every value was read and is committed.",
    "resume": "A member reads, commits and leaves; a later one reads only the new records.",
    "cooperative": "A new member gets half of the partitions, and the first member keeps the other half throughout.",
    "static": "A member with an instance id is killed, or leaves, and comes back: it gets its former partitions, "
    "and the other member is not disturbed.",
    "regex": "A subscription by regular expression: the topics that match are read, including one that is created "
    "later, and no others.",
    "KIP-848": "The hand-over again, with group.protocol=consumer; and static members and patterns in such groups.",
    "commit": "Two transactions of one producer. Before a commit, a reader of committed records gets nothing of the "
    "transaction, and afterwards everything; the last stable offset is at the end.",
    "abort": "An aborted transaction, of which nobody reads anything, and a committed one behind it.",
    "fenced": "A second producer takes the transactional id of the first, which is told so when it commits.",
    "send offsets": "A member of a group copies records in transactions with its offsets: an abort leaves copies and "
    "offsets as they were, a commit shows both.",
    "read_committed": "A consumer reads what is committed: nothing of aborted transactions, and nothing behind an open "
    "one until that has ended.",
    "PLAIN … mTLS": "Over TLS, with a password (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512), a signed token (OAUTHBEARER, "
    "which Java and librdkafka get from an issuer) or a client's certificate: a record is produced, and read in a "
    "group.",
    "wrong password": "Of each mechanism with passwords: the client says that it failed, and produces nothing.",
    "wrong host": "The server's certificate is for another host: the client refuses it.",
    "expired": "The server's certificate has expired: the client refuses it.",
    "revoked": "The ACL that lets a producer write is deleted while it is open: its next record is refused, with the "
    "reason. With the ACL back, the same producer writes again.",
    "re-authentication": "A session of four seconds (`connections.max.reauth.ms`): the client renews it on its "
    "connection while it produces (KIP-368).",
    "topics": "Creates a topic, lists it, deletes it.",
    "groups": "Lists groups; describes one with a member, and when it is empty.",
    "set offsets": "Reads a group's committed offsets, and sets one of them.",
    "delete offsets": "Deletes one committed offset of a group and keeps the other.",
    "delete groups": "Deletes a group.",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a test. `reason` is empty where it passed."""

    passed: bool
    reason: str = ""


class Notes:
    """Footnotes; the same text is one note."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self._texts:
            self._texts.append(text)
        return f"<sup>{self._texts.index(text) + 1}</sup>"

    def lines(self) -> list[str]:
        wrapped: list[str] = []
        for number, text in enumerate(self._texts, 1):
            wrapped += textwrap.wrap(
                f"{number}. {text[:1].upper()}{text[1:]}.", 120, subsequent_indent="   ", break_long_words=False
            )
        return wrapped


def cell(client: Client, feature: str, outcomes: Mapping[tuple[str, str], Outcome], notes: Notes) -> str:
    if feature in client.lacks:
        return ABSENT + notes.mark(client.lacks[feature])
    outcome = outcomes.get((client.key, feature))
    if outcome is None:
        return NOT_RUN
    if not outcome.passed:
        return FAILED + notes.mark(client.fails.get(feature, outcome.reason))
    return PASSED + (notes.mark(client.notes[feature]) if feature in client.notes else "")


def write(
    outcomes: Mapping[tuple[str, str], Outcome],
    versions: Mapping[str, str],
    programs: Mapping[tuple[str, str], tuple[str, list[Outcome]]],
    missing: Mapping[str, Iterable[str]],
) -> None:
    """`programs`: their title and purpose, with a version and the outcomes of their tests (none if not run); `missing`:
    the tools that this machine lacks, and the parts that were not run because of it."""
    notes = Notes()
    lines = ["# Clients", "", *_wrapped(_introduction(missing)), "", _last_run(), ""]
    for section, features in FEATURES.items():
        lines += [f"## {section}", ""]
        lines += _table(
            ["client", "version", *features],
            [
                [
                    client.title,
                    versions.get(client.key, ""),
                    *(cell(client, name, outcomes, notes) for name in features),
                ]
                for client in CLIENTS
                if section not in client.outside
            ],
        )
    lines += ["## Programs", "", *_wrapped("Whole programs that are made with such clients."), ""]
    lines += _table(
        ["program", "version", "what it does", "result"],
        [[title, version, what, _all(found, notes)] for (title, what), (version, found) in sorted(programs.items())],
    )
    lines += ["## Notes", "", *notes.lines(), "", "## What the columns mean", ""]
    for name, meaning in MEANINGS.items():
        lines += textwrap.wrap(f"- **{name}**: {meaning}", 120, subsequent_indent="  ", break_long_words=False)
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _introduction(missing: Mapping[str, Iterable[str]]) -> str:
    text = (
        "Which features of which clients work with kohort. The clients are unmodified and run as their users run them. "
        f"`make peers-clients` runs the tests and writes this page. {PASSED}: the test passed. {FAILED}: it failed. "
        f"{ABSENT}: the client does not have the feature. “not run”: the machine of the run lacks the tools. To repeat "
        'a cell, use its name: `pytest -m matrix tests/matrix -k "sarama and static"`. Each test checks the result '
        "with a second client: the records in the log, the offsets in the group, the partitions of each member."
    )
    for tool, what in missing.items():
        text += f" Without {tool}: {', '.join(what)}."
    return text


def _last_run() -> str:
    """The only line that is another one with each run: .ci/run compares the others."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"Last run: {date.today():%-d %B %Y}, kohort {kohort.__version__}, {machine}."


def _all(found: list[Outcome], notes: Notes) -> str:
    if not found:
        return NOT_RUN
    failed = [outcome.reason for outcome in found if not outcome.passed]
    return PASSED if not failed else FAILED + "".join(notes.mark(reason) for reason in failed)


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)
