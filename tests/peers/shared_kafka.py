"""`python tests/peers/shared_kafka.py COMMAND…`: the command, beside a running Apache Kafka that all its tests share.

They find its address in KAFKA_SERVERS.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS / "java")]

import java_libraries  # noqa: E402
from bench import _kafka  # noqa: E402
from kafka_peer import LIKE_KOHORT  # noqa: E402


def main() -> int:
    with _kafka.kafka(java_libraries.kafka(), LIKE_KOHORT, java_options=_kafka.BRIEF) as (_, (host, port)):
        return subprocess.run(sys.argv[1:], env=os.environ | {"KAFKA_SERVERS": f"{host}:{port}"}).returncode


if __name__ == "__main__":
    sys.exit(main())
