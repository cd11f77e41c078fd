"""How foreign clients behave, by the software name in their ApiVersions request (KIP-511).

Code that treats one client differently uses this file. Elsewhere a client's name is only in explanations. Two things
cannot be here: the default of `group.heartbeat.hold.clients` (config imports nothing), and the pace at which simulated
clients work (`simulator/sizing/clients`, which takes its names from here).
"""

from __future__ import annotations

JAVA = "apache-kafka-java"
LIBRDKAFKA = "librdkafka"
FRANZ_GO = "kgo"

LIBRDKAFKA_BINDINGS = frozenset(
    {
        "confluent-kafka-dotnet",
        "confluent-kafka-go",
        "confluent-kafka-javascript",
        "confluent-kafka-python",
        "karafka",
        "rust-rdkafka",
    }
)
"""librdkafka sends their heartbeats; librdkafka asks its bindings to send a software name of their own."""

PATIENT_CLIENTS = frozenset((FRANZ_GO,))
"""They wait for the answer of a heartbeat longer than the interval that they got (10 s), and sleep meanwhile."""

CLOSE_CLIENTS = frozenset((JAVA,))
"""Their heartbeats do not time out with the interval that they got, so a hold may be almost as long."""


def with_bindings(names: frozenset[str]) -> frozenset[str]:
    """`names`, and the bindings of librdkafka if it is among them."""
    return names | LIBRDKAFKA_BINDINGS if LIBRDKAFKA in names else names
