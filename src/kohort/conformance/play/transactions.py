"""Commands of sequences about transactions. `x` is a producer whose transactional id has that name.

coordinator x type=1                            FindCoordinator (stage.py)
init x [tv=1] [again=yes] [pid= epoch= timeout= id= v= once=yes]
copy x z                                        z: a copy of the producer x with a connection of its own
add x t:0 t:1 [v=3 once=yes]                    AddPartitionsToTxn as clients send it
ask x t:0 [verify=no v=5]                       as brokers send it; other names before the places: more ids
add-offsets x [group=g v=]                      AddOffsetsToTxn
send x t:0 [seq= v= plain=yes id=]              Produce: one record in each partition
txn-commit x t:0 [offset= group= member= epoch= instance= metadata= v=]
end x commit|abort [v= once=yes]                EndTxn; returns when the markers are written
spin x 32766                                    InitProducerId until the epoch is this
read t:0 [from=0 committed=yes v=]              Fetch: last stable offset, aborted transactions, batches in words
ends t:0 [time=latest committed=yes v=]         ListOffsets
trim t:0 5                                      DeleteRecords
mark x t:0 commit|abort [epoch= coordinator= version= v=]     WriteTxnMarkers
producers t:0                                   DescribeProducers
transaction x                                   DescribeTransactions
transactions [states= producers= duration= pattern= v=]       ListTransactions, the ids of this sequence
until-state x CompleteAbort

What a producer names is what its last answers gave it, or an option: a number, `+1` and `~1` for one more or less.
Producers with `tv=1` send what clients sent before KIP-890. Requests are repeated while the answer is that the
coordinator is not ready (14, 15, 16) or a transaction is about to end (51); not with `once=yes`. Producer ids are
printed as names: x is the first one of x, x' the second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kohort.client.wire.blocking_connection import Connection
from kohort.conformance.play.frames import Options, WireCommands
from kohort.conformance.play.requests import WAIT_S, changed, request, wait_for
from kohort.wire.batches import NewRecord, decode_records, encode_batch, split_batches
from kohort.wire.embedded import by_topic
from kohort.wire.errors import ErrorCode
from kohort.wire.markers import read_marker

RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
PRODUCE, END, OFFSETS = {1: 11, 2: 12}, {1: 4, 2: 5}, {1: 3, 2: 5}
"""The versions of requests, by the transaction version of the client."""
TIMES = {"latest": -1, "earliest": -2, "max": -3}
AT_ONCE = 200
"""Requests that `spin` sends before it reads their answers."""
APART_MS, AGO_MS = 1_000, 3_600_000
"""The record with sequence number 0 has the timestamp 1000, each further one is a second later; counted from an hour
before the sequence began. Markers have the time of the server, which is printed as `now`."""


@dataclass(slots=True)
class Producer:
    name: str
    transactional_id: str | None
    connection: Connection
    version: int = 2
    id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def follow(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.id, self.epoch):
            self.sequences.clear()
        self.id, self.epoch = producer_id, epoch


class TransactionCommands(WireCommands):
    """`Stage` has the methods that are not here."""

    if TYPE_CHECKING:
        _names: dict[Any, str]
        _actors: dict[str, Any]

        def _connect(self, client_id: str) -> Connection: ...
        def _ask(self, connection: Connection, message: Any, version: int) -> Any: ...
        def _control(self, message: Any, version: int) -> Any: ...
        def _show(self, message: Any, group: str = "g") -> list[str]: ...
        def _epoch(self, text: str | None, actor: Any, group: str) -> int: ...
        def _member_id(self, given: str | None, actor: Any) -> str: ...
        def _partitions(self, words: Iterable[str]) -> Iterator[tuple[str, int]]: ...

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._producers: dict[str, Producer] = {}
        self._ids_of: dict[str, int] = {}
        """How many producer ids each name has had."""
        self._zero_ms = time.time_ns() // 1_000_000 - AGO_MS

    def _close_producers(self) -> None:
        for producer in self._producers.values():
            producer.connection.close()

    def _abort_all(self) -> None:
        """A new producer of an id ends its transaction."""
        for name in {one.transactional_id for one in self._producers.values() if one.transactional_id}:
            self._control(request("InitProducerId", transactional_id=name, transaction_timeout_ms=1_000), 4)

    # -- producers

    def do_init(self, words: list[str], options: Options) -> list[str]:
        name = words[0]
        if name not in self._producers:
            self._names[self._real(name)] = name
            self._producers[name] = Producer(name, self._real(name), self._connect(name), int(options.get("tv", 2)))
        producer = self._producers[name]
        return self._show(self._repeated(lambda: self._init(producer, options), _error_of, options))

    def _init(self, producer: Producer, options: Options) -> Any:
        named = {**({"pid": "+0", "epoch": "+0"} if "again" in options else {}), **options}
        transactional_id = {"null": None, "''": ""}.get(options.get("id", ""), producer.transactional_id)
        ask = request(
            "InitProducerId",
            transactional_id=transactional_id,
            transaction_timeout_ms=int(options.get("timeout", 60_000)),
            producer_id=self._number(named.get("pid", "-1"), producer.id),
            producer_epoch=self._number(named.get("epoch", "-1"), producer.epoch),
        )
        answer = self._ask(producer.connection, ask, int(options.get("v", 5)))
        if not answer.error_code:
            self._follow(producer, answer)
        return answer

    def do_copy(self, words: list[str], options: Options) -> None:
        old, name = self._producers[words[0]], words[1]
        connection = self._connect(words[0])  # the same client
        self._producers[name] = Producer(name, old.transactional_id, connection, old.version, old.id, old.epoch)
        self._producers[name].sequences = dict(old.sequences)

    def do_spin(self, words: list[str], options: Options) -> list[str]:
        producer, wanted = self._producers[words[0]], int(words[1])
        ask = request("InitProducerId", transactional_id=producer.transactional_id, transaction_timeout_ms=60_000)
        response = type(self._ask(producer.connection, ask, 5))
        producer.epoch += 1
        while producer.epoch < wanted:
            count = min(AT_ONCE, wanted - producer.epoch)
            for _ in range(count):
                producer.connection.send(ask, version=5)
            answers = [producer.connection.receive(response) for _ in range(count)]
            assert [answer.error_code for answer in answers] == [0] * count
            producer.epoch = answers[-1].producer_epoch
        producer.sequences.clear()
        return [f"epoch={producer.epoch}"]

    def _follow(self, producer: Producer, answer: Any) -> None:
        producer.follow(answer.producer_id, answer.producer_epoch)
        if ("producer_id", producer.id) not in self._names:
            name = "no id" if producer.transactional_id is None else producer.name
            self._names["producer_id", producer.id] = name + "'" * self._ids_of.get(name, 0)
            self._ids_of[name] = self._ids_of.get(name, 0) + 1

    def _producer(self, producer: Producer, options: Options) -> dict[str, Any]:
        """The fields that name a producer."""
        given = options.get("id")
        name = {"''": ""}.get(given, self._named(given)) if given is not None else producer.transactional_id
        return {
            "transactional_id": name,
            "producer_id": self._number(options.get("pid", "+0"), producer.id),
            "producer_epoch": self._number(options.get("epoch", "+0"), producer.epoch),
        }

    def _number(self, text: str, known: int) -> int:
        if text in self._producers:
            return self._producers[text].id
        return known + int(text[1:]) * (1 if text[0] == "+" else -1) if text[0] in "+~" else int(text)

    def _repeated(self, ask: Callable[[], Any], error_of: Callable[[Any], int], options: Options) -> Any:
        deadline = time.monotonic() + WAIT_S
        while error_of(answer := ask()) in RETRIED and "once" not in options and time.monotonic() < deadline:
            time.sleep(0.005)
        return answer

    # -- adding

    def do_add(self, words: list[str], options: Options) -> list[str]:
        producer = self._producers[words[0]]
        fields = self._producer(producer, options) | {"topics": self._adding(words[1:])}
        ask = request("AddPartitionsToTxn", **{f"v3_and_below_{name}": value for name, value in fields.items()})

        def error_of(answer: Any) -> int:
            [first, *_] = answer.results_by_topic_v3_and_below or (None,)
            return 0 if first is None else int(first.results_by_partition[0].partition_error_code)

        version = int(options.get("v", 3))
        return self._show(self._repeated(lambda: self._ask(producer.connection, ask, version), error_of, options))

    def do_ask(self, words: list[str], options: Options) -> list[str]:
        places = [word for word in words if ":" in word]
        transactions = [
            self._producer(self._producers[name], options)
            | {"verify_only": options.get("verify") != "no", "topics": self._adding(places)}
            for name in words
            if ":" not in name
        ]
        ask = request("AddPartitionsToTxn", transactions=transactions)
        return self._show(self._control(ask, int(options.get("v", 5))))

    def _adding(self, words: Iterable[str]) -> list[dict[str, Any]]:
        return [{"name": self._topic(name), "partitions": of} for name, of in by_topic(self._partitions(words))]

    def _topic(self, name: str) -> str:
        """Internal topics have no name of the sequence."""
        if name.startswith("__"):
            return name
        self._names.setdefault(self._place(name), name)
        return self._place(name)

    def _named(self, name: str) -> str:
        """The server's name, which answers print as the sequence's, whether it exists or not."""
        self._names.setdefault(self._real(name), name)
        return self._real(name)

    def do_add_offsets(self, words: list[str], options: Options) -> list[str]:
        producer = self._producers[words[0]]
        group = self._real(options.get("group", "g"))
        ask = request("AddOffsetsToTxn", **self._producer(producer, options), group_id=group)
        version = int(options.get("v", 3))
        return self._show(self._repeated(lambda: self._ask(producer.connection, ask, version), _error_of, options))

    # -- data

    def do_send(self, words: list[str], options: Options) -> list[str]:
        producer = self._producers[words[0]]
        topics = [
            {"name": self._topic(name), "partition_data": [self._data(producer, name, index, options) for index in of]}
            for name, of in by_topic(self._partitions(words[1:]))
        ]
        transactional_id = (
            None if options.get("id") == "null" else self._producer(producer, options)["transactional_id"]
        )
        ask = request("Produce", transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics)
        version = int(options.get("v", PRODUCE[producer.version]))
        answer = self._repeated(lambda: self._ask(producer.connection, ask, version), _produce_error, options)
        for topic in answer.responses:
            for partition in topic.partition_responses:
                if not partition.error_code and "seq" not in options:
                    place = self._names.get(topic.name, topic.name), partition.index
                    producer.sequences[place] = producer.sequences.get(place, 0) + 1
        return self._show(answer)

    def _data(self, producer: Producer, name: str, index: int, options: Options) -> dict[str, Any]:
        fields = self._producer(producer, options)
        sequence = self._number(options.get("seq", "+0"), producer.sequences.get((name, index), 0))
        value = options.get("value", f"{producer.name}{sequence}")
        batch = encode_batch(
            [NewRecord(None, value.encode(), self._zero_ms + APART_MS * (sequence + 1))],
            producer_id=fields["producer_id"],
            producer_epoch=fields["producer_epoch"],
            base_sequence=sequence,
            is_transactional="plain" not in options,
            is_control="control" in options,
        )
        return {"index": index, "records": batch}

    def do_txn_commit(self, words: list[str], options: Options) -> list[str]:
        producer = self._producers[words[0]]
        actor = self._actors.get(options.get("member", ""))
        group = options.get("group", "g")
        content = {
            "committed_offset": int(options.get("offset", 5)),
            "committed_metadata": options.get("metadata", ""),
        }
        fields = self._producer(producer, {name: options[name] for name in ("id", "pid") if name in options})
        fields["producer_epoch"] = self._number(options.get("producer-epoch", "+0"), producer.epoch)
        ask = request(
            "TxnOffsetCommit",
            **fields,
            group_id=self._real(group),
            generation_id=self._epoch(options.get("epoch"), actor, group),
            member_id=actor.member_id if actor is not None else options.get("member", ""),
            group_instance_id=options.get("instance"),
            topics=[
                {"name": self._place(topic), "partitions": [{"partition_index": index} | content for index in of]}
                for topic, of in by_topic(self._partitions(words[1:]))
            ],
        )

        def error_of(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code) if answer.topics else 0

        version = int(options.get("v", OFFSETS[producer.version]))
        return self._show(self._repeated(lambda: self._ask(producer.connection, ask, version), error_of, options))

    # -- ends

    def do_end(self, words: list[str], options: Options) -> list[str]:
        producer = self._producers[words[0]]
        version = int(options.get("v", END[producer.version]))
        fields = self._producer(producer, options)
        ask = request("EndTxn", **fields, committed=words[1] == "commit")
        answer = self._repeated(lambda: self._ask(producer.connection, ask, version), _error_of, options)
        if not answer.error_code:
            if version >= END[2]:
                self._follow(producer, answer)
            wait_for(lambda: not self._state(producer).startswith("Prepare"), "the transaction does not end")
        return self._show(answer)

    def _state(self, producer: Producer) -> str:
        ask = request("DescribeTransactions", transactional_ids=[producer.transactional_id])
        [described] = self._control(ask, 0).transaction_states
        return str(described.transaction_state)

    def do_until_state(self, words: list[str], options: Options) -> None:
        producer = self._producers[words[0]]
        wait_for(lambda: self._state(producer) == words[1], f"{words[0]} is never in {words[1]}")

    def do_mark(self, words: list[str], options: Options) -> list[str]:
        producer, places = self._producers[words[0]], words[1:-1]
        fields = self._producer(producer, options)
        marker = {
            "producer_id": fields["producer_id"],
            "producer_epoch": fields["producer_epoch"],
            "transaction_result": words[-1] == "commit",
            "coordinator_epoch": int(options.get("coordinator", 0)),
            "topics": [
                {"name": self._topic(name), "partition_indexes": of} for name, of in by_topic(self._partitions(places))
            ],
        } | ({"transaction_version": int(options["version"])} if "version" in options else {})
        ask = request("WriteTxnMarkers", markers=[marker] * int(options.get("times", 1)))
        return self._show(self._control(ask, int(options.get("v", 2 if "version" in options else 1))))

    # -- readers

    def do_read(self, words: list[str], options: Options) -> list[str]:
        topics = [
            {
                "topic": self._topic(name),
                "partitions": [
                    {"partition": index, "fetch_offset": int(options.get("from", 0)), "partition_max_bytes": 1 << 20}
                    for index in of
                ],
            }
            for name, of in by_topic(self._partitions(words))
        ]
        ask = request(
            "Fetch",
            max_wait_ms=int(options.get("wait", 0)),
            min_bytes=1 if "wait" in options else 0,
            max_bytes=int(options.get("bytes", 1 << 20)),
            isolation_level=int("committed" in options),
            topics=topics,
        )
        answer = self._control(ask, int(options.get("v", 12)))
        return [
            line
            for topic in answer.responses
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
            for line in self._read(self._names.get(topic.topic, topic.topic), part)
        ]

    def _read(self, name: str, part: Any) -> Iterator[str]:
        aborted = part.aborted_transactions
        listed = "null" if aborted is None else "+".join(f"{self._of(a.producer_id)}@{a.first_offset}" for a in aborted)
        yield (
            f"{name}:{part.partition_index} error={part.error_code} start={part.log_start_offset} "
            f"lso={part.last_stable_offset} hw={part.high_watermark} aborted={listed or 'none'}"
        )
        for header, data in split_batches(part.records or b"", strict=False):
            by = f"{self._of(header.producer_id)}/{header.producer_epoch}" if header.producer_id >= 0 else "nobody"
            if header.is_control:
                marker = read_marker(data, header)
                said = "nothing" if marker is None else f"{'COMMIT' if marker.committed else 'ABORT'}"
                epoch = "" if marker is None else f" coordinator={marker.coordinator_epoch}"
                yield f"    {header.base_offset} {said} {by}{epoch} attributes={header.attributes:#x}"
            else:
                values = "+".join((record.value or b"").decode(errors="replace") for record in decode_records(data))
                kind = " transactional" if header.is_transactional else ""
                yield f"    {header.base_offset} {values} {by} sequence={header.base_sequence}{kind}"

    def _of(self, producer_id: int) -> str:
        return self._names.get(("producer_id", producer_id), str(producer_id))

    def do_ends(self, words: list[str], options: Options) -> list[str]:
        given = options.get("time", "latest")
        timestamp = TIMES[given] if given in TIMES else self._zero_ms + int(given)
        topics = [
            {
                "name": self._place(name),
                "partitions": [{"partition_index": index, "timestamp": timestamp} for index in of],
            }
            for name, of in by_topic(self._partitions(words))
        ]
        isolation = int("committed" in options)
        ask = request("ListOffsets", replica_id=-1, isolation_level=isolation, topics=topics)
        answer = self._control(ask, int(options.get("v", 7)))
        return [
            f"{self._names.get(topic.name, topic.name)}:{part.partition_index} error={part.error_code} "
            f"offset={part.offset} timestamp={self._time(part.timestamp)}"
            for topic in answer.topics
            for part in topic.partitions
        ]

    def _time(self, timestamp: int) -> str:
        if timestamp < 0:
            return str(timestamp)
        since = timestamp - self._zero_ms
        return str(since) if since < AGO_MS else "now"

    def do_trim(self, words: list[str], options: Options) -> list[str]:
        [(name, (index,))] = by_topic(self._partitions(words[:1]))
        topic = {"name": self._place(name), "partitions": [{"partition_index": index, "offset": int(words[1])}]}
        return self._show(self._control(request("DeleteRecords", topics=[topic], timeout_ms=10_000), 2))

    # -- tools

    def do_producers(self, words: list[str], options: Options) -> list[str]:
        topics = [
            {"name": self._topic(name), "partition_indexes": of} for name, of in by_topic(self._partitions(words))
        ]
        return self._show(self._control(request("DescribeProducers", topics=topics), 0))

    def do_transaction(self, words: list[str], options: Options) -> list[str]:
        ids = [self._real(name) if name != "''" else "" for name in words]
        return self._show(self._control(request("DescribeTransactions", transactional_ids=ids), 0))

    def do_transactions(self, words: list[str], options: Options) -> list[str]:
        version = int(options.get("v", 2))
        pattern = options.get("pattern")
        producers = (
            [self._number(name, -1) for name in options["producers"].split(",")] if "producers" in options else []
        )
        ask = request(
            "ListTransactions",
            state_filters=options["states"].split(",") if "states" in options else [],
            producer_id_filters=producers,
            **({"duration_filter": int(options["duration"])} if "duration" in options else {}),
            **({"transactional_id_pattern": pattern.replace("^", f"{self._sequence}\\.")} if pattern else {}),
        )
        answer = self._control(ask, version)
        mine = tuple(one for one in answer.transaction_states if one.transactional_id in self._names)
        return self._show(changed(answer, transaction_states=mine))


def _error_of(answer: Any) -> int:
    return int(answer.error_code)


def _produce_error(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)
