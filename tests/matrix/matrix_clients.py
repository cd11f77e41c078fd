"""The rows and columns of docs/clients.md: which client has which feature, and which programs it needs.

Features that a client lacks are listed here and in the page, with the reason; all others are run. A missing feature
is missing in the tested version: `lacks` says why a cell is empty, never that the cell would fail.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

import matrix_features as features
import matrix_security as security
import matrix_transactions as transactions
from gateway_server import UPSTREAM
from matrix_stage import CODECS

CLASSIC, CONSUMER = "classic", "consumer"

FEATURES: dict[str, dict[str, features.Feature]] = {
    "Records": {
        **{codec: features.produces(codec) for codec in CODECS},
        "idempotent": features.produces_once,
        "read": features.reads,
    },
    "Groups": {
        "hand-over": features.hands_over(CLASSIC),
        "resume": features.resumes,
        "cooperative": features.moves_no_more_than_it_must,
        "static": features.comes_back(CLASSIC),
        "regex": features.matches(CLASSIC),
        "KIP-848": features.hands_over(CONSUMER),
        "KIP-848 static": features.comes_back(CONSUMER),
        "KIP-848 regex": features.matches(CONSUMER),
    },
    "Transactions": {
        "commit": transactions.commits,
        "abort": transactions.aborts,
        "fenced": transactions.is_fenced,
        "send offsets": transactions.sends_offsets,
        "read_committed": transactions.reads_committed,
    },
    "Security": {
        "PLAIN": security.enters_with("PLAIN"),
        "SCRAM-256": security.enters_with("SCRAM-SHA-256"),
        "SCRAM-512": security.enters_with("SCRAM-SHA-512"),
        "OAUTHBEARER": security.enters_with("OAUTHBEARER"),
        "mTLS": security.enters_with(""),
        "wrong password": security.has_a_wrong_password,
        "wrong host": security.finds_another_host,
        "expired": security.finds_an_expired_certificate,
        "revoked": security.loses_a_right,
        "re-authentication": security.renews_its_session,
    },
    "Administration": {
        "topics": features.administers_topics,
        "groups": features.administers_groups,
        "set offsets": features.administers_offsets,
        "delete offsets": features.deletes_offsets,
        "delete groups": features.deletes_groups,
    },
}
"""The features in each section of the page."""
COLUMNS = {name: feature for of_section in FEATURES.values() for name, feature in of_section.items()}
NOT_THROUGH_A_GATEWAY = frozenset(("send offsets", *FEATURES["Security"])) if UPSTREAM else frozenset()
"""With GATEWAY_UPSTREAM=kohort, all other cells run through a gateway; then the page is not written."""


def _node_has_zstd() -> bool:
    if shutil.which("node") is None:
        return True
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = (int(part) for part in said.strip().removeprefix("v").split(".")[:2])
    return (major, minor) >= (22, 15)


NODE_HAS_ZSTD = _node_has_zstd()
PRODUCER_OF_TRANSACTIONS = ("commit", "abort", "fenced", "send offsets")
NO_KIP_848 = "does not speak the protocol of KIP-848"
KIP_848 = dict.fromkeys(("KIP-848", "KIP-848 static", "KIP-848 regex"), NO_KIP_848)


@dataclass(frozen=True, slots=True)
class Client:
    """A row. `tools` are the programs without which its cells cannot run."""

    key: str
    title: str
    tools: tuple[str, ...]
    lacks: Mapping[str, str] = field(default_factory=dict)
    fails: Mapping[str, str] = field(default_factory=dict)
    """The known failures of the client, against Apache Kafka too, with the reasons. The cell is run, and must fail."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Remarks on a cell that passes."""
    looks_for_topics: bool = True
    """True if the client searches for topics of a pattern again after it has subscribed."""
    codecs: tuple[str, ...] = CODECS
    """Those that it can read."""

    outside: tuple[str, ...] = ()
    """Sections of the page in which it has no row."""

    @property
    def runs(self) -> list[str]:
        """The features that it has."""
        return [
            name
            for section, of_section in FEATURES.items()
            if section not in self.outside
            for name in of_section
            if name not in self.lacks and name not in NOT_THROUGH_A_GATEWAY
        ]

    def missing(self) -> list[str]:
        return [tool for tool in self.tools if shutil.which(tool) is None]


CLIENTS = (
    Client("java", "Java (kafka-clients)", ("mvn", "javac")),
    Client(
        "confluent",
        "librdkafka (confluent-kafka)",
        (),
        {"delete offsets": "the Python binding has no call for it"},
        notes={"revoked": "writes again when it has refreshed its metadata (topic.metadata.refresh.interval.ms)"},
    ),
    Client(
        "kafka-python",
        "kafka-python",
        (),
        KIP_848,
        notes={"revoked": "with enable_idempotence=False; its idempotent producer sends nothing more after a refusal"},
    ),
    Client(
        "aiokafka",
        "aiokafka",
        (),
        {
            **KIP_848,
            "cooperative": "has no cooperative assignor",
            "re-authentication": "does not renew sessions",
            "set offsets": "its admin client has no call for it",
            "delete offsets": "its admin client has no call for it",
            "delete groups": "its admin client has no call for it",
        },
    ),
    Client(
        "franz-go",
        "franz-go",
        ("go",),
        fails={
            "KIP-848 static": "its last heartbeat (epoch -2) names no instance id, which Kafka and kohort refuse: the "
            "member stays until its session ends, and its partitions go to other members"
        },
    ),
    Client("sarama", "sarama (IBM)", ("go",), {**KIP_848, "regex": "subscribes to names only"}),
    Client(
        "kafka-go",
        "kafka-go (segmentio)",
        ("go",),
        {
            **KIP_848,
            "idempotent": "has no idempotent producer",
            **dict.fromkeys(PRODUCER_OF_TRANSACTIONS, "has no transactional producer, only the requests"),
            "cooperative": "has no cooperative balancer",
            "static": "its groups take no instance id",
            "regex": "subscribes to names only",
        },
        fails={
            "read_committed": "stops before open transactions, but gives the records of aborted ones: it does not use "
            "the list of them in the answers"
        },
        outside=("Security",),
    ),
    Client(
        "kafkajs",
        "kafkajs",
        ("node", "npm"),
        {
            **KIP_848,
            "cooperative": "has no cooperative assignor",
            "static": "takes no instance id",
            "delete offsets": "its admin client has no call for it",
        },
        looks_for_topics=False,
        notes={"regex": "looks for topics when it subscribes, not again"},
    ),
    Client(
        "platformatic",
        "@platformatic/kafka",
        ("node", "npm"),
        {
            "cooperative": "has no cooperative assignor",
            "regex": "subscribes to names only",
            "KIP-848 regex": "subscribes to names only",
            **({} if NODE_HAS_ZSTD else {"zstd": "takes it from Node 22.15 or newer"}),
        },
        fails={
            "fenced": "its InitProducerId always names producer id 0 and epoch 0, which Kafka and kohort refuse once "
            "the transactional id is known: a second producer cannot begin",
            "KIP-848 static": "a static member leaves for good when it closes (epoch -1), so its partitions go to "
            "other members",
        },
        codecs=("none", "gzip", "lz4", *(("zstd",) if NODE_HAS_ZSTD else ())),
        outside=("Security",),
        notes={"read": "reads snappy as it writes it, not in the framing that Java's producers and kohort's give it"},
    ),
    Client(
        "kcat",
        "kcat",
        ("kcat",),
        {
            **dict.fromkeys(KIP_848, "its librdkafka is older than that protocol"),
            **dict.fromkeys(PRODUCER_OF_TRANSACTIONS, "reads its whole input, then sends and commits it at once"),
            **dict.fromkeys(("send offsets", *FEATURES["Administration"]), "is no tool for it"),
        },
        outside=("Security",),
    ),
)
