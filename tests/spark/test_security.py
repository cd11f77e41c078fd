"""Sink and source by TLS: the driver plans and the executors read and write over connections that verify the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from own_certificates import PASSWORD, authority, issue, written
from tls_front import TlsFront

from kohort.client.cluster import Cluster
from kohort.spark.lake.ingest import ingest
from kohort.testing import KohortServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_rows_go_out_and_come_back_by_tls(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ca = authority()
    front, own = TlsFront(issue(ca, "127.0.0.1"), tmp_path), issue(ca, name="alice")
    security = {"security.protocol": "SSL", "ssl.truststore.location": written(tmp_path, "ca.pem", ca.certificate_pem)}
    security |= {"ssl.keystore.certificate.chain": own.certificate_pem, "ssl.keystore.key": own.locked_key_pem}
    security |= {"ssl.key.password": PASSWORD}
    options = {"kafka.bootstrap.servers": front.address, **{f"kafka.{n}": value for n, value in security.items()}}
    inside = {"listeners": "127.0.0.1:0", "advertised_listeners": front.address}
    with KohortServer(**inside) as server, front.to(str(server._server.addresses[0])):
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
