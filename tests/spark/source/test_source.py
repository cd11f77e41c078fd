"""The source in a real Spark session against a real server: rows, offsets of the group, restarts, lost data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from group_member import GroupMember
from micro_batches import until
from own_certificates import PASSWORD, authority, issue, written
from tls_front import TlsFront
from topic_content import delete_before

from kohort.client.admin.commit_metadata import GroupReader, group_reader_of
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.spark.lake.ingest import IngestFailed, IngestSummary, ingest
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord, encode_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

WHEN = 1_700_000_000_000


def fill(cluster: Cluster, topic: str, partitions: int, records: int, *, create: bool = True, first: int = 0) -> None:
    if create:
        cluster.create_topic(topic, partitions)
    for partition in range(partitions):
        new = [NewRecord(b"k%d" % n, b"v%d" % n, WHEN + n) for n in range(first, first + records)]
        cluster.produce(topic, partition, new)


def source(spark: Any, server: KohortServer, **options: str) -> Any:
    renamed = {name.replace("_", "."): value for name, value in options.items()}
    return (
        spark.read.format("kohort").options(**{"kafka.bootstrap.servers": server.bootstrap_servers, **renamed}).load()
    )


def offsets(spark: Any, path: Path) -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in spark.read.parquet(str(path)).select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return {partition: sorted(taken) for partition, taken in found.items()}


def test_a_batch_read_has_sparks_schema_and_every_row(spark: Any, server: KohortServer, cluster: Cluster) -> None:
    fill(cluster, "t", 2, 50)
    frame = source(spark, server, subscribe="t")
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    rows = frame.orderBy("partition", "offset").collect()
    assert [(r.partition, r.offset, bytes(r.key), bytes(r.value)) for r in rows] == [
        (partition, n, b"k%d" % n, b"v%d" % n) for partition in range(2) for n in range(50)
    ]
    assert rows[7].topic == "t"
    millis = frame.selectExpr("unix_millis(timestamp) AS ms").orderBy("ms").first().ms
    assert millis == WHEN


def test_offsets_headers_nulls_and_every_compression(spark: Any, server: KohortServer, cluster: Cluster) -> None:
    cluster.create_topic("t", 1)
    for codec in range(5):
        records = [NewRecord(None, b"x", WHEN, (("h", b"1"), ("n", None))), NewRecord(b"k", None, WHEN)]
        cluster.produce("t", 0, encode_batch(records, compression=codec))
    frame = source(
        spark,
        server,
        subscribePattern="t+",
        includeHeaders="true",
        startingOffsets='{"t":{"0":2}}',
        endingOffsets='{"t":{"0":9}}',
    )
    rows = frame.orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(2, 9))
    assert rows[0].key is None
    assert [(h.key, h.value) for h in rows[0].headers] == [("h", bytearray(b"1")), ("n", None)]
    assert rows[1].value is None
    assert rows[1].headers is None


def test_a_read_of_some_columns_with_filters(spark: Any, server: KohortServer, cluster: Cluster) -> None:
    """The filters decide what is read: one task, of few records."""
    fill(cluster, "t", 2, 50)
    frame = source(spark, server, subscribe="t", columns="value,offset,partition,timestamp", pushFilters="true")
    assert frame.columns == ["value", "offset", "partition", "timestamp"]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        some = frame.where("partition = 1 AND offset < 40").where(f"timestamp >= timestamp_millis({WHEN + 30})")
        assert some.rdd.getNumPartitions() == 1
        rows = some.orderBy("offset").collect()
        assert [(row.partition, row.offset, bytes(row.value)) for row in rows] == [
            (1, n, b"v%d" % n) for n in range(30, 40)
        ]
        assert frame.where("offset > 1000").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_large_batches_are_decoded_by_compiled_code(spark: Any, server: KohortServer, cluster: Cluster) -> None:
    """The batches are large enough for numba; they are read whole, and by tasks that meet inside a batch."""
    batch = encode_batch([NewRecord(b"k%d" % n, b"v" * (n % 50), WHEN) for n in range(7_000)], compression=3)
    cluster.create_topic("t", 1, configs={"retention.ms": "-1"})
    for _ in range(30):
        cluster.produce("t", 0, batch)
    for options in ({}, {"minPartitions": "4"}):
        frame = source(spark, server, subscribe="t", **options)
        assert frame.rdd.getNumPartitions() == int(options.get("minPartitions", 1))
        row = frame.selectExpr(
            "count(*) AS n", "count(DISTINCT offset) AS offsets", "max(offset) AS last", "sum(length(value)) AS bytes"
        ).first()
        assert (row.n, row.offsets, row.last, row.bytes) == (210_000, 210_000, 209_999, 30 * 140 * sum(range(50)))


def test_group_offsets_come_as_typed_columns_and_bad_reads_are_refused(
    spark: Any, server: KohortServer, cluster: Cluster
) -> None:
    cluster.create_topic("t", 1)
    cluster.commit("g", {("t", 0): 7})
    frame = source(spark, server, subscribe="__consumer_offsets", decode="consumer_offsets")
    [row] = frame.where("commit_topic = 't'").select("group", "commit_offset", "log_partition", "log_offset").collect()
    assert (row.group, row.commit_offset) == ("g", 7)
    end = cluster.offsets([("__consumer_offsets", row.log_partition)])
    assert end == {("__consumer_offsets", row.log_partition): row.log_offset + 1}
    assert source(spark, server, subscribe="t").count() == 0
    for options, message in (
        ({"subscribe": "t", "decode": "avro"}, "decode is 'avro'; it takes raw or consumer_offsets"),
        ({"subscribe": "absent"}, "no such topic: absent"),
    ):
        with pytest.raises(Exception, match=message):
            source(spark, server, **options).count()


@pytest.mark.timeout(300)
def test_a_stream_over_restarts_and_growth(spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path) -> None:
    fill(cluster, "t", 2, 100)

    def run(lake: str = "a", **more: Any) -> IngestSummary:
        given = {"bootstrap_servers": server.bootstrap_servers, "topics": ["t"], "group_id": "lake"}
        return ingest(spark, output=tmp_path / lake, max_offsets_per_trigger=80, **given, **more)

    def unfinish(lake: str, batch: int) -> None:
        """Take the batch from the commit log, as if the query was killed after it wrote the rows."""
        for name in (str(batch), f".{batch}.crc"):
            (tmp_path / lake / "_checkpoint" / "commits" / name).unlink()

    lags: list[int] = []
    first = run(on_progress=lambda p: lags.append(p.lag))
    assert (first.rows, first.batches) == (200, 3)
    assert lags == [120, 40, 0]
    assert {place: c.offset for place, c in cluster.committed("lake").items()} == {("t", 0): 100, ("t", 1): 100}
    unfinish("a", 2)
    cluster.commit("lake", {("t", 0): 90})
    # The restart reads only new records, and all of a new partition.
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_partitions([NewPartitions("t", 3)])["t"].result(10)
    fill(cluster, "t", 3, 10, create=False, first=100)
    assert run().committed == {("t", 0): 110, ("t", 1): 110, ("t", 2): 10}
    assert offsets(spark, tmp_path / "a") == {0: list(range(110)), 1: list(range(110)), 2: list(range(10))}
    # A new checkpoint begins where the group is, and where the group was if its batch 0 is repeated.
    fill(cluster, "t", 1, 10, create=False, first=110)
    fresh = run("b")
    assert (fresh.rows, fresh.committed) == (10, {("t", 0): 120, ("t", 1): 110, ("t", 2): 10})
    unfinish("b", 0)
    cluster.commit("lake", {("t", 0): 117})
    fill(cluster, "t", 1, 5, create=False, first=120)
    assert run("b").committed == fresh.committed | {("t", 0): 125}
    assert offsets(spark, tmp_path / "b") == {0: list(range(110, 125))}


def test_lost_records_are_an_error_or_a_warning(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    fill(cluster, "t", 1, 10)
    given = {"bootstrap_servers": server.bootstrap_servers, "topics": ["t"], "group_id": "g", "output": tmp_path}
    ingest(spark, **given)
    fill(cluster, "t", 1, 10, create=False, first=10)
    delete_before(cluster, "t", 0, 15)
    with pytest.raises(IngestFailed, match="t-0: offset 10 is not in the log, which holds 15 to 20"):
        ingest(spark, **given)
    done = ingest(spark, options={"failOnDataLoss": "false"}, **given)
    assert (done.rows, done.committed) == (5, {("t", 0): 20})
    assert offsets(spark, tmp_path) == {0: [*range(10), *range(15, 20)]}


def test_a_supervised_query_does_not_get_past_a_recreated_topic(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    """Each restart from the checkpoint fails, until the user accepts the loss; then the new topic is read whole."""
    fill(cluster, "t", 1, 10)
    given = {"bootstrap_servers": server.bootstrap_servers, "topics": ["t"], "group_id": "g", "output": tmp_path}
    ingest(spark, **given)
    cluster.delete_topic("t")
    fill(cluster, "t", 1, 25)
    for _ in range(2):
        with pytest.raises(IngestFailed, match="t was deleted and created again; the query had reached offset 10"):
            ingest(spark, **given)
    done = ingest(spark, options={"failOnDataLoss": "false"}, **given)
    assert (done.rows, done.committed) == (25, {("t", 0): 25})
    assert sorted(offsets(spark, tmp_path)[0]) == sorted([*range(10), *range(25)])
    fill(cluster, "t", 1, 5, create=False, first=25)
    assert ingest(spark, **given).rows == 5


# -- the journal: a row of JSON for each story; the newest row of each key counts

STORY = """
    group STRING, number BIGINT, started_ms BIGINT, took_ms BIGINT, outcome STRING, moved INT,
    cause STRUCT<what: STRING, client_id: STRING, host: STRING, waited_ms: BIGINT>,
    held_up_by ARRAY<STRUCT<how: STRING, client_id: STRING, waited_ms: BIGINT>>,
    members ARRAY<STRUCT<client_id: STRING, assignment: MAP<STRING, ARRAY<INT>>>>
"""


def test_stories_in_a_query(spark: Any, server: KohortServer, cluster: Cluster) -> None:
    for group in ("billing", "shipping"):
        GroupMember(server.bootstrap_servers, group, {"orders": (0, 1)}).leave()
    topic = (
        spark.read.format("kohort")
        .option("kafka.bootstrap.servers", server.bootstrap_servers)
        .option("subscribe", "__kohort_journal")
        .load()
    )
    topic.createOrReplaceTempView("journal")
    rows = spark.sql(
        f"""
        SELECT story.* FROM (
            SELECT from_json(CAST(value AS STRING), '{STORY}') AS story,
                   row_number() OVER (PARTITION BY key ORDER BY offset DESC) AS nth
            FROM journal)
        WHERE nth = 1 ORDER BY story.group, story.number
        """
    ).collect()
    assert [(row.group, row.number, row.outcome, row.cause.what) for row in rows] == [
        ("billing", 1, "Stable", "member joined"),
        ("billing", 2, "Empty", "member left"),
        ("shipping", 1, "Stable", "member joined"),
        ("shipping", 2, "Empty", "member left"),
    ]
    assert rows[0].cause.client_id == "by-hand"
    assert rows[0].members[0].assignment == {"orders": [0, 1]}


# -- the consumer group of a query: the commits and their authors, and the offsets after a stop


def start(spark: Any, server: KohortServer, checkpoint: Path, options: dict[str, str], **trigger: Any) -> Any:
    given = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": "t", "startingOffsets": "earliest"}
    frame = spark.readStream.format("kohort").options(**given, **options).load()
    writer = frame.writeStream.format("noop").queryName("lake").option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger)


def committed(cluster: Cluster) -> dict[int, Committed]:
    return {partition: entry for (_, partition), entry in cluster.committed("g").items()}


def holder(entry: Committed) -> GroupReader:
    found = group_reader_of(entry.metadata)
    assert found is not None
    return found


def test_commits_name_the_query_and_a_stop_between_triggers_commits(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", 2)
    cluster.produce("t", 0, [NewRecord(b"k", b"v", 0)] * 30)
    query = start(spark, server, tmp_path, {"group.id": "g"}, availableNow=True).start()
    assert query.awaitTermination(60)
    assert {partition: entry.offset for partition, entry in committed(cluster).items()} == {0: 30, 1: 0}
    (report,) = query.recentProgress
    assert report.sources[0].latestOffset == '{"t": {"0": 30, "1": 0}}'
    first = holder(committed(cluster)[0])
    assert (first.query, first.run, first.name, first.batch) == (query.id, query.runId, "lake", 0)
    assert first.application == spark.sparkContext.appName
    # A restart that finds nothing new leaves it as it is.
    assert start(spark, server, tmp_path, {"group.id": "g"}, availableNow=True).start().awaitTermination(60)
    assert holder(committed(cluster)[0]) == first
    # Stopped long before the next trigger: only the checkpoint says that the batch is finished.
    cluster.produce("t", 1, [NewRecord(b"k", b"v", 0)] * 7)
    told = {"group.id": "g", "checkpointLocation": str(tmp_path)}
    query = start(spark, server, tmp_path, told, processingTime="1 hour").start()
    until(lambda: query.recentProgress and query.recentProgress[-1].numInputRows)
    assert committed(cluster)[1].offset == 0
    query.stop()
    until(lambda: committed(cluster)[1].offset == 7)
    second = holder(committed(cluster)[1])
    assert (second.query, second.name, second.batch) == (query.id, "lake", 1)


def test_asynchronous_progress_tracking_is_refused(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", 1)
    cluster.produce("t", 0, [NewRecord(b"k", b"v", 0)] * 5)
    writer = start(spark, server, tmp_path, {"maxOffsetsPerTrigger": "2"}, processingTime="0 seconds")
    query = writer.option("asyncProgressTrackingEnabled", "true").start()
    with pytest.raises(Exception, match=r"asynchronous progress tracking \(asyncProgressTrackingEnabled\) is not"):
        query.awaitTermination(60)


# -- TLS: the driver plans and the executors read and write over connections that verify the broker


def test_rows_go_out_and_come_back_by_tls(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ca = authority()
    front, own = TlsFront(issue(ca, "127.0.0.1"), tmp_path), issue(ca, name="alice")
    security = {"security.protocol": "SSL", "ssl.truststore.location": written(tmp_path, "ca.pem", ca.certificate_pem)}
    security |= {"ssl.keystore.certificate.chain": own.certificate_pem, "ssl.keystore.key": own.locked_key_pem}
    security |= {"ssl.key.password": PASSWORD}
    options = {"kafka.bootstrap.servers": front.address, **{f"kafka.{n}": value for n, value in security.items()}}
    inside = {"listeners": "127.0.0.1:0", "advertised_listeners": front.address}
    with KohortServer(**inside) as server, front.to(server.listeners):
        with Cluster(front.address, security=security) as cluster:
            cluster.create_topic("t", 2)
        rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 2 AS INT) AS partition")
        rows.write.format("kohort").options(topic="t", **options).mode("append").save()
        read = spark.read.format("kohort").options(subscribe="t", **options).load()
        assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(100))
        read.explain(True)
        assert PASSWORD not in capsys.readouterr().out
        summary = ingest(
            spark,
            bootstrap_servers=front.address,
            topics=["t"],
            output=tmp_path / "lake",
            group_id="g",
            options=options,
        )
        assert summary.rows == 100
        with Cluster(front.address, security=security) as cluster:
            committed = {place: found.offset for place, found in cluster.committed("g").items()}
        assert committed == {("t", 0): 50, ("t", 1): 50}
        stranger = written(tmp_path, "other.pem", authority("other").certificate_pem)
        distrusting = options | {"subscribe": "t", "kafka.ssl.truststore.location": stranger}
        with pytest.raises(Exception, match="no authority that this client trusts has signed it"):
            spark.read.format("kohort").options(**distrusting).load().count()
