"""The simulated groups of `kohort pipeline simulate` beside real ones: how far may their figures be believed?

The measured figures are those of docs/performance.md (`bench rebalance`: consumer groups that read 60 partitions) and
of README.md (`bench push`: classic groups of three with 12 partitions): real clients, 2 cores, kohort. Simulated is the
same, of groups as young as those: so many members, one that joins, leaves or is killed, and the time until nothing
changes any more; of a kill from when the coordinator has removed the member. Median and worst in ms, of the simulation
over SEEDS runs. Takes some minutes; needs neither Spark nor clients.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from kohort.simulator.sizing import Point, run
from kohort.simulator.sizing.point import normal
from kohort.simulator.sizing.run import killed_and_noticed

SEEDS = 12
POLL_MS = 10
"""The measured consumers did nothing with a record."""

JOINS = {
    ("librdkafka", 3): ("68, 385", "2838, 3311"),
    ("librdkafka", 10): ("87, 128", "3042, 4554"),
    ("librdkafka", 50): ("54, 71", "4784, 5037"),
    ("java", 3): ("429, 525", "2146, 4502"),
    ("java", 10): ("389, 432", "3595, 5468"),
    ("java", 50): ("588, 601", "4475, 5330"),
}
"""Client and members: measured with pushes, and without."""
KILLS = {
    ("librdkafka", 3): ("56, 180", "4816, 4906"),
    ("librdkafka", 10): ("25, 35", "4859, 4866"),
    ("java", 3): ("250, 273", "5057, 5248"),
    ("java", 10): ("226, 241", "5016, 5036"),
}
CLASSIC = {
    ("librdkafka", "eager"): ("58, 531", "1994, 2737", "22, 426", "1394, 2823"),
    ("librdkafka", "cooperative"): ("1064, 1544", "4371, 6010", "18, 1428", "1886, 2926"),
    ("java", "eager"): ("75, 843", "1978, 2836", "36, 840", "1358, 2861"),
    ("java", "cooperative"): ("3100, 3849", "4103, 5809", "71, 957", "1082, 2615"),
}
"""Joins and leaves, each pushed and not; median and 95th percentile."""


def main() -> None:
    print(f"{'':34}{'measured':>14}{'simulated':>14}")
    for (client, members), measured in JOINS.items():
        for pushed, found in zip((True, False), measured, strict=True):
            point = _consumers(client, members, pushed, "scale-out")
            _tell(f"joins {client} {members}", pushed, found, (run(point, seed).stable_ms for seed in range(SEEDS)))
    for (client, members), measured in KILLS.items():
        for pushed, found in zip((True, False), measured, strict=True):
            point = _consumers(client, members + 1, pushed, "steady")
            times = (killed_and_noticed(normal(point), seed) for seed in range(SEEDS))
            _tell(f"kills {client} {members}", pushed, found, times)
    for (client, protocol), measured in CLASSIC.items():
        cases = [("joins", "scale-out", 3, True), ("joins", "scale-out", 3, False)]
        cases += [("leaves", "scale-in", 4, True), ("leaves", "scale-in", 4, False)]
        for (what, pattern, members, pushed), found in zip(cases, measured, strict=True):
            point = Point(
                protocol=protocol,
                pattern=pattern,
                members=members,
                partitions=12,
                count=1,
                client=client,
                pushed=pushed,
                poll_ms=POLL_MS,
                aged=False,
            )
            times = (run(point, seed).stable_ms for seed in range(SEEDS))
            _tell(f"{what} {client} {protocol}", pushed, found, times)


def _consumers(client: str, members: int, pushed: bool, pattern: str) -> Point:
    """As in `bench rebalance`, whose sessions are short."""
    return Point(
        pattern=pattern,
        members=members,
        partitions=60,
        count=1,
        client=client,
        pushed=pushed,
        poll_ms=POLL_MS,
        aged=False,
        session_ms=15_000,
    )


def _tell(what: str, pushed: bool, measured: str, times: Iterable[float]) -> None:
    found = list(times)
    simulated = f"{statistics.median(found):.0f}, {max(found):.0f}"
    print(f"{what + (', pushed' if pushed else ', not pushed'):34}{measured:>14}{simulated:>14}", flush=True)


if __name__ == "__main__":
    main()
