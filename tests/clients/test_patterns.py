"""Subscriptions by regular expression, of confluent-kafka's consumers with the consumer protocol."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from crowd import Crowd
from produce import create_topic, produce

from kohort.client.cluster import Cluster

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]
SERVER: dict[str, object] = {}


@pytest.mark.conformance("N15")
def test_topics_that_match_are_read_also_those_that_come_later_until_they_go(bootstrap: str, unique: str) -> None:
    for name in ("a", "b"):
        create_topic(bootstrap, f"{unique}-{name}", 2)
        produce("confluent", bootstrap, f"{unique}-{name}", [f"{name}{n}" for n in range(4)], 2)
    create_topic(bootstrap, f"other-{unique}-a", 1)
    with Crowd(bootstrap, unique, f"^{unique}-.*") as crowd:
        reader = crowd.join()
        crowd.wait(lambda: len(reader.read) == 8, "8 values")
        assert reader.topics == {f"{unique}-a", f"{unique}-b"}
        create_topic(bootstrap, f"{unique}-later", 1)
        produce("confluent", bootstrap, f"{unique}-later", ["later"], 1)
        crowd.wait(lambda: "later" in reader.read, "a value of the later topic")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([f"{unique}-a"])[f"{unique}-a"].result(10)
        crowd.wait(lambda: reader.topics == {f"{unique}-b", f"{unique}-later"}, "a topic less")
        assert sorted(reader.read) == sorted([f"{name}{n}" for name in "ab" for n in range(4)] + ["later"])


@pytest.mark.conformance("N15")
def test_members_with_other_patterns_and_names_share_what_they_have_in_common(bootstrap: str, unique: str) -> None:
    for name in ("orders-eu", "orders-us", "payments"):
        create_topic(bootstrap, f"{unique}-{name}", 2)
    with Crowd(bootstrap, unique) as crowd:
        one = crowd.join(f"^{unique}-orders-.*", f"{unique}-payments")
        two = crowd.join(f"^{unique}-orders-(eu|us)", "^nothing-.*")
        crowd.wait(lambda: len(one.assigned) == len(two.assigned) == 3, "three partitions each")
        assert f"{unique}-payments" not in two.topics
        one.consumer.subscribe([f"{unique}-payments"])
        crowd.wait(lambda: len(one.assigned) == 2 and len(two.assigned) == 4, "two and four partitions")
        assert one.topics == {f"{unique}-payments"}


@pytest.mark.conformance("X2", "O24")
def test_offsets_of_topics_that_match_are_subscribed(bootstrap: str, unique: str) -> None:
    topic = f"{unique}-a"
    create_topic(bootstrap, topic, 1)
    produce("confluent", bootstrap, topic, ["v"], 1)
    with Crowd(bootstrap, unique, f"^{unique}-.*") as crowd, Cluster(bootstrap) as cluster:
        reader = crowd.join()
        crowd.wait(lambda: reader.read == ["v"], "the value")
        assert reader.errors == [], "its commit is accepted"
        assert cluster.committed(unique)[topic, 0].offset == 1


@pytest.mark.conformance("N15")
def test_an_invalid_pattern_is_an_error_of_the_consumer(bootstrap: str, unique: str) -> None:
    with Crowd(bootstrap, unique, "^(a)\\1") as crowd:  # a pattern to the client, which checks it too
        reader = crowd.join()
        crowd.wait(lambda: bool(reader.errors), "an error")
        assert "regular expression is not valid" in str(reader.errors[0])
