"""The short form of the fuzzing: inputs of past finds, Hypothesis over the schema tables, the first inputs of the rest.

The seeds are fixed: a run that fails has met a change. Fresh ones are what `make fuzz` is for. A failure prints how to
repeat it: Hypothesis its blob, the fuzzer the input itself, which `python tests/fuzz --repeat FILE` takes. More:
docs/fuzzing.md.
"""

from __future__ import annotations

import random
from pathlib import Path

import fuzz_repeat
import pytest
from fuzz_batches import BatchFuzz
from fuzz_broker import BrokerFuzz, Story, failure_of
from fuzz_checks import Find
from fuzz_codec import CodecFuzz
from fuzz_framing import FramingFuzz
from fuzz_grammar import Words, all_messages, draw
from fuzz_mutations import Mutations
from fuzz_run import CHUNK, run
from fuzz_shrink import shrunk, shrunk_story
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.wire import codec
from kohort.wire.schemas.heartbeat import HeartbeatRequest

MESSAGES = all_messages()
FIXED = settings(
    deadline=None, database=None, derandomize=True, print_blob=True, suppress_health_check=list(HealthCheck)
)
SEED = 1
CHANCE = st.randoms(use_true_random=False)
"""Hypothesis plays the random generator: so it can make what it finds smaller."""


@pytest.mark.parametrize("vector", sorted(fuzz_repeat.VECTORS.glob("*.txt")), ids=lambda path: path.stem)
def test_past_finds(vector: Path) -> None:
    fuzz_repeat.repeated(*fuzz_repeat.read(vector))


@settings(FIXED, max_examples=600)
@given(message=st.sampled_from(MESSAGES), chance=CHANCE)
def test_messages_of_every_table(message: tuple[type, int], chance: random.Random) -> None:
    cls, version = message
    fuzz = CodecFuzz(chance)
    drawn = draw(cls, version, Words(chance))
    fuzz.check_valid(drawn)
    mutations = Mutations(drawn.data, drawn.marks, chance)
    fuzz.check(cls, version, [mutations.one() for _ in range(8)])


@settings(FIXED, max_examples=200)
@given(chance=CHANCE)
def test_streams_of_frames(chance: random.Random) -> None:
    fuzz = FramingFuzz(chance)
    pen = fuzz.stream()
    mutations = Mutations(bytes(pen.data), pen.marks, chance)
    fuzz.check([(data, fuzz.pieces(data)) for data in (mutations.data, mutations.one())])


@settings(FIXED, max_examples=60)
@given(chance=CHANCE)
def test_record_batches(chance: random.Random) -> None:
    fuzz = BatchFuzz(chance)
    fuzz.check(fuzz.made(6))


@settings(FIXED, max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_stories_of_a_broker(seed: int) -> None:
    Story(random.Random(seed)).run(60)


@pytest.mark.parametrize("kind", ["codec", "framing", "batches", "broker", "guest"])
def test_the_first_inputs_of_everything_in_memory(kind: str) -> None:
    """Those with which `make fuzz FUZZ_SEED=1` begins."""
    inputs = CHUNK[kind] * (1 if kind == "broker" else 4)
    outcome = run([kind], SEED, 1, inputs, 0, say=print)
    for find in outcome.finds:
        print(fuzz_repeat.written(find.kind, find.about, find.data, find.what.replace("\n", "\n# ")))
    assert not outcome.finds
    assert outcome.inputs[kind] >= inputs


def test_the_same_seed_gives_the_same_inputs() -> None:
    states = []
    for _ in range(2):
        chance = random.Random("7 broker 0")
        assert BrokerFuzz(chance).run(50) >= 50
        states.append(chance.getstate())
    assert states[0] == states[1]


def test_a_find_is_made_smaller() -> None:
    assert shrunk(b"some bytes, and an X among others", lambda data: b"X" in data) == b"X"
    story = b"brokers 1\nopen 1 1\nwait 5\nframe 1 00\nturn\nwait 7"
    assert shrunk_story(story, lambda text: b"frame" in text) == b"brokers 1\nframe 1 00"


def test_forbidden_outcomes_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks notice an exception in a handler, an invalid answer, a slow turn and too much memory."""
    from kohort.broker import answers, decoding

    story = b"brokers 1\nopen 1 1\nframe 1 00120000000000010000\nturn"
    assert failure_of(story) is None
    monkeypatch.setattr(answers, "response_pieces", lambda *_, **__: [b"\0\0\0\x04\0\0\0\x02"])
    assert failure_of(story) == "Violation"
    monkeypatch.setattr(answers, "response_pieces", lambda *_, **__: 1 // 0)
    assert failure_of(story) == "ZeroDivisionError"
    monkeypatch.undo()
    monkeypatch.setattr(decoding, "read_request_header", lambda _: [n * n for n in range(3_000_000)])
    assert failure_of(story) is not None
    monkeypatch.undo()
    read = codec.decode_prefix
    message = HeartbeatRequest(group_id="g")
    data = codec.encode(message, 4)
    monkeypatch.setattr(codec, "decode_prefix", lambda *asked: (bytearray(10_000_000), read(*asked))[1])
    with pytest.raises(Find, match="bytes for"):
        CodecFuzz(random.Random(0)).check(HeartbeatRequest, 4, [data])
    monkeypatch.setattr(codec, "decode_prefix", lambda *_: (message, 99))
    with pytest.raises(Find, match="read up to 99"):
        CodecFuzz(random.Random(0)).check(HeartbeatRequest, 4, [data])
