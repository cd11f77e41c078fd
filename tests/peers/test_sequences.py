"""Sequences of requests, and what Apache Kafka and kohort answer to them, in sequences/.

Kafka's answers were recorded, so kohort is compared with them wherever the tests run. `make test-peers` (Maven, Java
17) asks Kafka again; with `--rewrite` it records what both answer now. Where they differ, a comment says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import peer_servers
import pytest
from lanes import STRICT

from kohort.conformance.files import SEQUENCES
from kohort.conformance.play import transcript
from kohort.conformance.play.broker import Address

PATHS = sorted(SEQUENCES.glob("*.txt"))
STEPS = {path: transcript.parse(path.read_text(encoding="utf-8")) for path in PATHS}
SETTINGS = sorted({tuple(transcript.settings_of(steps).items()) for steps in STEPS.values()})
EACH = pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings[0][1] if settings else "usual")
AT_A_TIME = 8

Settings = tuple[tuple[str, str], ...]
Answers = dict[Path, list[list[str]]]


@EACH
def test_kohort_answers_as_recorded(settings: Settings) -> None:
    with peer_servers.kohort(dict(settings)) as address:
        answers = _play_all(address, settings)
    assert _differences(answers, "kohort") == ""


def test_strict_kohort_answers_about_transactions_as_kafka() -> None:
    """But for the differences that stay in the strict mode."""
    with peer_servers.kohort({"compatibility": STRICT.compatibility}) as address:
        answers = _play_all(address, (), "transactions_*.txt")
    assert len(answers) > 10
    wrong: list[str] = []
    for path, given in answers.items():
        for before, step, now in zip([transcript.Step(""), *STEPS[path]], STEPS[path], given, strict=False):
            stays = transcript.difference_of(before.command) in STRICT.ids
            if now != (expected := step.answers["kohort" if stays else "kafka"]):
                wrong += [f"{path.name}: {step.command}", *_indented("expected", expected), *_indented("now", now)]
    assert wrong == []


@pytest.mark.peers
@pytest.mark.timeout(600)
@EACH
def test_kafka_answers_as_recorded(settings: Settings, class_path: str, request: pytest.FixtureRequest) -> None:
    with peer_servers.kafka(class_path, dict(settings)) as address:
        answers = _play_all(address, settings)
    if request.config.getoption("--rewrite"):
        with peer_servers.kohort(dict(settings)) as address:
            _write(kafka=answers, kohort=_play_all(address, settings))
    else:
        assert _differences(answers, "kafka") == ""


def test_every_difference_is_explained() -> None:
    found = {path.name: transcript.unexplained(steps) for path, steps in STEPS.items()}
    assert {name: commands for name, commands in found.items() if commands} == {}


def _play_all(address: Address, settings: Settings, pattern: str = "*") -> Answers:
    """The answers to every sequence for servers with these settings, several at a time; transactions in turn."""
    of_settings = [path for path, steps in STEPS.items() if tuple(transcript.settings_of(steps).items()) == settings]
    chosen = [path for path in of_settings if path.match(pattern)]

    def play(path: Path) -> list[list[str]]:
        return transcript.play(address, path.stem, [step.command for step in STEPS[path]])

    def play_in_turn(paths: list[Path]) -> list[list[list[str]]]:
        return [play(path) for path in paths]

    # Kafka verifies the transactions of all clients in batches. The first one of a batch decides which
    # error all get (`transactionSupportedOperation` of AddPartitionsToTxnManager), so they come one after another.
    transactional = [path for path in chosen if path.match("transactions_*")]
    others = [path for path in chosen if path not in transactional]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        in_turn = pool.submit(play_in_turn, transactional)
        played = dict(zip(others, pool.map(play, others), strict=True))
    return played | dict(zip(transactional, in_turn.result(), strict=True))


def _differences(answers: Answers, server: str) -> str:
    """The present and the recorded answers of a server, for the commands where they differ."""
    lines: list[str] = []
    for path, given in answers.items():
        for step, now in zip(STEPS[path], given, strict=True):
            if now != step.answers[server]:
                lines += [f"{path.name}: {step.command}", *_indented("recorded", step.answers[server])]
                lines += _indented("now", now)
    return "\n".join(lines)


def _indented(what: str, lines: Sequence[str]) -> list[str]:
    return [f"  {what:8} {line}" for line in lines]


def _write(**answers: Any) -> None:
    for path in answers["kafka"]:
        steps = STEPS[path]
        for number, step in enumerate(steps):
            step.answers = {server: given[path][number] for server, given in answers.items()}
        path.write_text(transcript.written(steps), encoding="utf-8")
