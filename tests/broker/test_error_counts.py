"""The errors of answers, counted by API."""

from __future__ import annotations

from group_driver import commit, heartbeat_request, stable
from wire_driver import Connection, Wire, delete_topics, fetch_request

from kohort.broker.apis import APIS
from kohort.broker.messages import changed
from kohort.broker.metrics.error_counts import MOST_ROWS, ErrorCounts, _places
from kohort.simulator.checks.onlooker import response_of
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic

DELETE_TOPICS, FETCH, HEARTBEAT, METADATA, COMMIT = 20, 1, 12, 3, 8


def test_errors_of_rows_and_of_whole_answers(wire: Wire, client: Connection) -> None:
    wire.broker.state.errors = errors = ErrorCounts()
    client.create_topic("t")
    client.ask(delete_topics("absent", "gone", "t"), 5)
    client.ask(fetch_request("absent"), 11)
    joined = stable(client)
    client.ask(changed(heartbeat_request(joined), generation_id=9), 4)
    assert commit(client, 1, generation_id_or_member_epoch=9, member_id=joined.member_id) != 0
    found = {key: count for key, count in errors.counts.items() if key[0] != 11}
    assert found == {
        (DELETE_TOPICS, 3): 2,
        (FETCH, 3): 1,
        (HEARTBEAT, 22): 1,
        (COMMIT, 3): 1,
    }


def test_without_metrics_nothing_is_counted(wire: Wire, client: Connection) -> None:
    assert wire.broker.state.errors is None
    client.ask(delete_topics("absent"), 5)


def test_every_answer_with_errors_has_its_places() -> None:
    """ApiVersions to WriteTxnMarkers: each answer says its errors somewhere, or in the whole of it."""
    without = {api.name for api in APIS.values() if _places(response_of(api.request)) == ("", ())}
    assert without == set()


def test_large_answers_are_looked_at_in_part() -> None:
    topic = MetadataResponseTopic(error_code=3, name="t", partitions=())
    errors = ErrorCounts()
    errors.add(METADATA, MetadataResponse(brokers=(), topics=(topic,) * 2 * MOST_ROWS))
    assert errors.counts == {(METADATA, 3): MOST_ROWS - 1} or errors.counts == {(METADATA, 3): MOST_ROWS}


def test_a_heartbeat_that_needs_no_turn_costs_nothing_more(wire: Wire, client: Connection) -> None:
    joined = stable(client)
    for _ in range(3):
        client.ask(heartbeat_request(joined), 4)
    without = wire.operations(client.frame(heartbeat_request(joined), 4))
    wire.broker.state.errors = ErrorCounts()
    assert wire.operations(client.frame(heartbeat_request(joined), 4)) == without


def test_metadata_of_an_unknown_topic(wire: Wire, client: Connection) -> None:
    wire.broker.state.errors = errors = ErrorCounts()
    client.ask(MetadataRequest(topics=(MetadataRequestTopic(name="absent"),), allow_auto_topic_creation=False), 9)
    assert errors.counts == {(METADATA, 3): 1}
