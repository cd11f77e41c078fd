"""Coverage-guided fuzzing with atheris, started manually: libFuzzer chooses bytes that reach new code.

    python -m venv .atheris && .atheris/bin/pip install atheris -e ".[test]"
    KOHORT_PURE=1 .atheris/bin/python tests/fuzz/atheris_fuzz.py -max_total_time=600 -rss_limit_mb=1024 -timeout=5

The options are libFuzzer's; a folder may be named in which it keeps what it found interesting. The first two bytes say
what takes the rest: a message of some table in some version, the splitter, a record batch, or a broker's connection.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["kohort"]):
    import fuzz_batches
    from fuzz_codec import CodecFuzz
    from fuzz_framing import FramingFuzz
    from fuzz_grammar import all_messages
    from fuzz_world import World


MESSAGES = all_messages()
FRAMING, BATCHES, BROKER = range(len(MESSAGES), len(MESSAGES) + 3)
CODEC = CodecFuzz(random.Random(0))
FRAMES = FramingFuzz(random.Random(0))


def instrumented() -> None:
    """Let the generated decoders be seen, made while the fuzzer runs and not instrumented by themselves."""
    from kohort.wire import compiler

    make = compiler.Source.compile

    def compiled(source: compiler.Source, signature: str, label: str) -> object:
        function = make(source, signature, label)
        return atheris.instrument_func(function)

    compiler.Source.compile = compiled  # type: ignore[method-assign]


def one(data: bytes) -> None:
    what = int.from_bytes(data[:2], "big") % (len(MESSAGES) + 3)
    data = data[2:]
    if what < len(MESSAGES):
        CODEC.check(*MESSAGES[what], [data])
    elif what == FRAMING:
        FRAMES.check([(data, [data[:5], data[5:]])])
    elif what == BATCHES:
        fuzz_batches.exercised(fuzz_batches.righted(data))
    else:
        world = World()
        world.open(1)
        world.stream(1, data)
        world.turn()
        world.check_state()


def main() -> None:
    instrumented()
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
