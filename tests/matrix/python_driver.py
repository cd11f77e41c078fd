"""Driver of the Python clients and kcat (matrix_stage.py says what a driver is).

tests/clients/worker.py runs the members of the Python clients.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "clients"))
import worker  # a program of its own: pytest does not help it to find its modules
from kcat_driver import Kcat, Record
from kcat_driver import member as kcat_member
from python_security import AiokafkaSecurity, ConfluentSecurity, KafkaPythonSecurity
from python_transactions import AiokafkaTransactions, ConfluentTransactions, KafkaPythonTransactions


def records_of(partitions: int, first: int, count: int, pad: int) -> list[Record]:
    """What a command to produce asks for."""
    return [(n % partitions, b"k%d" % n, b"v%d%b" % (n, b"." * pad)) for n in range(first, first + count)]


class Confluent(ConfluentTransactions, ConfluentSecurity):
    def __init__(self, bootstrap: str) -> None:
        ConfluentTransactions.__init__(self, bootstrap)
        ConfluentSecurity.__init__(self)
        import confluent_kafka
        from confluent_kafka.admin import AdminClient

        self._bootstrap = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._bootstrap)
        self.version = f"{confluent_kafka.version()}, librdkafka {confluent_kafka.libversion()[0]}"

    def produce(self, topic: str, records: list[Record], codec: str, idempotent: bool) -> None:
        from confluent_kafka import Producer

        failures: list[str] = []
        settings = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 50}
        producer = Producer({**self._bootstrap, **settings})
        for partition, key, value in records:
            producer.produce(
                topic,
                value,
                key,
                partition,
                headers=[("h", b"x"), ("n", None)],
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
        assert producer.flush(40) == 0
        assert not failures, failures[0]

    def read(self, topic: str, partitions: int, count: int, isolation: str) -> Any:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": "none", "enable.auto.commit": False, "isolation.level": isolation}
        consumer = Consumer({**self._bootstrap, **settings})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[Any] = []
        while len(found) < count:
            for got in consumer.consume(count - len(found), 1):
                assert got.error() is None, got.error()
                found.append([got.partition(), got.offset(), got.key().decode(), got.value().decode()])
        consumer.close()
        return {"records": found}

    def create_topic(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewTopic

        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)

    def topics(self) -> Any:
        return {"topics": list(self._admin.list_topics(timeout=10).topics)}

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(10)

    def groups(self) -> Any:
        listed = self._admin.list_consumer_groups().result(10)
        assert not listed.errors, listed.errors
        return {"groups": [group.group_id for group in listed.valid]}

    def describe(self, group: str) -> Any:
        described = self._admin.describe_consumer_groups([group])[group].result(10)
        return {"state": described.state.name, "members": len(described.members)}

    def offsets(self, group: str, topic: str, partitions: int) -> Any:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in range(partitions)])
        found = self._admin.list_consumer_group_offsets([asked])[group].result(10)
        return {"offsets": {place.partition: place.offset for place in found.topic_partitions}}

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        [done] = self._admin.alter_consumer_group_offsets([wanted])[group].result(10).topic_partitions
        assert done.error is None, done.error

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(10)


class KafkaPython(KafkaPythonTransactions, KafkaPythonSecurity):
    def __init__(self, bootstrap: str) -> None:
        KafkaPythonTransactions.__init__(self, bootstrap)
        KafkaPythonSecurity.__init__(self)
        import kafka

        self._bootstrap = bootstrap
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
        self.version = kafka.__version__

    def produce(self, topic: str, records: list[Record], codec: str, idempotent: bool) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=50,
        )
        sent = [producer.send(topic, value, key, [("h", b"x")], partition) for partition, key, value in records]
        for each in sent:
            each.get(40)
        producer.close()

    def read(self, topic: str, partitions: int, count: int, isolation: str) -> Any:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, group_id=None, isolation_level=isolation)
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found: list[Any] = []
        while len(found) < count:
            for batch in consumer.poll(1000).values():
                found += [[r.partition, r.offset, r.key.decode(), r.value.decode()] for r in batch]
        consumer.close()
        return {"records": found}

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})

    def topics(self) -> Any:
        return {"topics": [t if isinstance(t, str) else t["name"] for t in self._admin.list_topics()]}

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def groups(self) -> Any:
        return {"groups": [group["group_id"] for group in self._admin.list_groups()]}

    def describe(self, group: str) -> Any:
        described = self._admin.describe_groups([group])[group]
        return {"state": described["group_state"], "members": len(described["members"])}

    def offsets(self, group: str, topic: str, partitions: int) -> Any:
        found = self._admin.list_group_offsets([group])[group]
        return {"offsets": {place.partition: at.offset for place, at in found.items() if place.topic == topic}}

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        from kafka import OffsetAndMetadata, TopicPartition

        self._admin.alter_group_offsets(group, {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)})

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        from kafka import TopicPartition

        self._admin.delete_group_offsets(group, [TopicPartition(topic, partition)])

    def delete_group(self, group: str) -> None:
        self._admin.delete_groups([group])


class Aiokafka(AiokafkaTransactions, AiokafkaSecurity):
    def __init__(self, bootstrap: str) -> None:
        AiokafkaTransactions.__init__(self, bootstrap)
        AiokafkaSecurity.__init__(self)
        import aiokafka

        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        self.version = aiokafka.__version__

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, 50))

    def _with_admin(self, call: Callable[[Any], Any]) -> Any:
        from aiokafka.admin import AIOKafkaAdminClient

        async def run() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return await call(admin)
            finally:
                await admin.close()

        return self._run(run())

    def produce(self, topic: str, records: list[Record], codec: str, idempotent: bool) -> None:
        from aiokafka import AIOKafkaProducer

        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=50,
            )
            await producer.start()
            sent = []
            for partition, key, value in records:
                sent.append(await producer.send(topic, value, key, partition, headers=[("h", b"x")]))
            await asyncio.gather(*sent)
            await producer.stop()

        self._run(run())

    def read(self, topic: str, partitions: int, count: int, isolation: str) -> Any:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def run() -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap, auto_offset_reset="earliest", isolation_level=isolation
            )
            await consumer.start()
            consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
            found: list[Any] = []
            while len(found) < count:
                for batch in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [[r.partition, r.offset, r.key.decode(), r.value.decode()] for r in batch]
            await consumer.stop()
            return {"records": found}

        return self._run(run())

    def create_topic(self, topic: str, partitions: int) -> None:
        from aiokafka.admin import NewTopic

        answer = self._with_admin(lambda admin: admin.create_topics([NewTopic(topic, partitions, 1)]))
        assert [error[1] for error in answer.topic_errors] == [0], answer

    def topics(self) -> Any:
        return {"topics": self._with_admin(lambda admin: admin.list_topics())}

    def delete_topic(self, topic: str) -> None:
        answer = self._with_admin(lambda admin: admin.delete_topics([topic]))
        assert [code for _, code in answer.topic_error_codes] == [0], answer

    def groups(self) -> Any:
        listed = self._with_admin(lambda admin: admin.list_consumer_groups())
        return {"groups": [group[0] for group in listed]}

    def describe(self, group: str) -> Any:
        [answer] = self._with_admin(lambda admin: admin.describe_consumer_groups([group]))
        [(error, _, state, _, _, members, *_)] = answer.groups
        assert error == 0, error
        return {"state": state, "members": len(members)}


DRIVERS: dict[str, Any] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "kcat": Kcat,
}


def run(bootstrap: str, client: str) -> None:
    driver = DRIVERS[client](bootstrap)
    worker.say(version=driver.version)
    for line in sys.stdin:
        what = json.loads(line)
        do = what.pop("do")
        if do in ("produce", "transact"):
            asked = {name: what.pop(name) for name in ("partitions", "first", "count", "pad")}
            what["records"] = records_of(**asked)
        if do == "produce":
            what.setdefault("idempotent", False)
        try:
            worker.say(done=getattr(driver, do)(**what) or {})
        except Exception as error:
            worker.say(failed=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    if "group" not in options:
        run(options["bootstrap"], options["client"])
    elif options["client"] == "kcat":
        kcat_member(options)
    else:
        worker.main()
