"""Settings: their sources, refused values and the messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.cli.serve import described_settings
from kohort.cli.start import chosen_config
from kohort.config import (
    SETTINGS,
    Address,
    Config,
    ConfigError,
    Deviations,
    addresses,
    check,
    listeners_of,
    load,
    value_at,
    with_values,
)

MIB = 1 << 20


def refusal(*settings: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load([tuple(s.split("=", 1)) for s in settings], environ=environ)  # type: ignore[misc]
    return str(caught.value)


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# a comment\nnum.partitions=2\nlog.retention.ms = 5\nmessage.max.bytes=6\n")
    config = load(
        {"num.partitions": "4"}, file=file, environ={"KOHORT_NUM_PARTITIONS": "3", "KOHORT_LOG_RETENTION_MS": "9"}
    )
    assert (config.num_partitions, config.log_retention_ms, config.message_max_bytes) == (4, 9, 6)


@pytest.mark.parametrize(
    ("texts", "limits"),
    [
        ({}, (140, 84, 84, 28)),
        ({"memory.max.bytes": 64 * MIB}, (20, 12, 12, 4)),
        ({"memory.max.bytes": 64 * MIB, "group.max.total.bytes": 3 * MIB}, (25, 15, 3, 4)),
        ({"queued.max.request.bytes": 196 * MIB}, (196, 60, 60, 20)),
        ({"log.tail.max.bytes": 0, "queued.max.response.bytes": 80 * MIB}, (160, 80, 96, 0)),
        (
            {"queued.max.request.bytes": MIB, "queued.max.response.bytes": MIB, "group.max.total.bytes": MIB},
            (1, 1, 1, 28),
        ),
        ({"queued.max.request.bytes": 192 * MIB, "group.max.total.bytes": 96 * MIB}, (192, 36, 96, 12)),
    ],
)
def test_limits_share_the_memory(texts: dict[str, int], limits: tuple[float, ...]) -> None:
    config = load({name: str(value) for name, value in texts.items()}, environ={})
    given = (
        config.queued_max_request_bytes,
        config.queued_max_response_bytes,
        config.group_max_total_bytes,
        config.log_tail_max_bytes,
    )
    assert given == tuple(int(limit * MIB) for limit in limits)


def test_the_defaults_are_the_shares_of_the_default_memory() -> None:
    assert load(environ={}) == check(Config())


def test_toml(tmp_path: Path) -> None:
    file = tmp_path / "kohort.toml"
    file.write_text("[log]\nretention.ms = 5\n[auto.create.topics]\nenable = false\n[x]\n")
    config = load(file=file, environ={})
    assert (config.log_retention_ms, config.auto_create_topics_enable) == (5, False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["num.partition=3"], ["num.partition", "did you mean num.partitions?"]),
        (["group.initial.rebalance.delay=3"], ["did you mean group.initial.rebalance.delay.ms?"]),
        (
            ["memory.max.bytes=20000000", "queued.max.request.bytes=12000000", "queued.max.response.bytes=9000000"],
            ["queued.max.request.bytes (12000000)", "group.max.total.bytes", "more than memory.max.bytes (20000000)"],
        ),
        (["queued.max.request.bytes=469762048"], ["more than memory.max.bytes (469762048)", "raise memory.max.bytes"]),
        (["frobnicate=3"], ["unknown setting frobnicate", "--list-settings"]),
        (["num.partitions=many"], ["num.partitions", "'many'", "a whole number"]),
        (["num.partitions=0"], ["num.partitions is 0", "the least is 1"]),
        (["auto.create.topics.enable=yes"], ["auto.create.topics.enable", "true or false"]),
        (["log.cleanup.policy=shred"], ["log.cleanup.policy", "delete, compact"]),
        (["listeners=nowhere"], ["listeners", "'nowhere'", "HOST:PORT"]),
        (["listeners=::1:9092"], ["listeners", "[ADDRESS]:PORT"]),
        (["listeners=a:70000"], ["listeners", "HOST:PORT"]),
        (["listeners=a:1,b:2"], ["2 addresses", "brokers is 1"]),
        (["listeners=a:1,a:1", "brokers=2"], ["names an address twice"]),
        (["listeners=EXT://a:1"], ["the listener EXT has no protocol", "add EXT:SASL_SSL"]),
        (["listeners=A-!://a:1"], ["the name of a listener"]),
        (["listeners="], ["listeners names no address"]),
        (["listeners=a:1,INT://a:1", "listener.security.protocol.map=INT:PLAINTEXT"], ["names an address twice"]),
        (["listener.security.protocol.map=INT"], ["listener.security.protocol.map", "NAME:PROTOCOL"]),
        (["listener.security.protocol.map=INT:TLS"], ["listener.security.protocol.map", "SASL_SSL"]),
        (["listener.security.protocol.map=A:SSL,a:PLAINTEXT"], ["names A twice"]),
        (["advertised.listeners=EXT://a:1"], ["the listener EXT, which listeners does not"]),
        (["listeners=a:65535", "brokers=2"], ["consecutive ports"]),
        (["advertised.listeners=0.0.0.0:9092"], ["advertised.listeners", "leads to this machine"]),
        (["group.min.session.timeout.ms=9", "group.max.session.timeout.ms=8"], ["is larger than"]),
        (
            ["group.consumer.session.timeout.ms=9000"],
            ["group.consumer.min.session.timeout.ms is 45000", "set them both"],
        ),
        (["group.consumer.heartbeat.interval.ms=20000"], ["group.consumer.max.heartbeat.interval.ms is 15000"]),
        (["group.consumer.assignment.interval.ms=15001"], ["group.consumer.max.assignment.interval.ms is 15000"]),
        (
            ["group.consumer.min.session.timeout.ms=9", "group.consumer.max.session.timeout.ms=8"],
            ["group.consumer.min.session.timeout.ms is 9", "larger than", "(8)"],
        ),
        (
            ["group.consumer.session.timeout.ms=5000", "group.consumer.min.session.timeout.ms=5000"],
            ["must be more than group.consumer.heartbeat.interval.ms (5000)"],
        ),
        (["group.consumer.assignors=uniform,range,uniform"], ["names uniform twice"]),
        (["group.consumer.assignors="], ["names no assignor", "uniform, range, rack and lag"]),
        (["default.replication.factor=2"], ["larger than brokers (1)"]),
        (["brokers=3", "broker.rack=a,b"], ["broker.rack names 2 racks"]),
        (["ssl.cipher.suites=x"], ["ssl.cipher.suites", "not served by kohort yet"]),
        (["listener.name.a.ssl.client.auth=none"], ["listeners does not name", "plaintext"]),
        (["listener.name.plaintext.num.partitions=2"], ["num.partitions is not a setting", "single listeners"]),
        (["listener.name.plaintext.ssl.client.auth=maybe"], ["ssl.client.auth", "required"]),
        (["sasl.kerberos.service.name=kafka"], ["not served by kohort yet"]),
        (["authorizer.class.name=X"], ["authorizer.class.name is 'X'"]),
        (["security.providers=X"], ["not served by kohort yet"]),
    ],
)
def test_wrong_values_are_named(settings: list[str], words: list[str]) -> None:
    said = refusal(*settings)
    assert all(word in said for word in words), said


def test_the_place_of_a_mistake_is_named(tmp_path: Path) -> None:
    assert "in the environment" in refusal(KOHORT_NUM_PARTITIONS="x")
    file = tmp_path / "server.properties"
    for text, words in (
        ("nothing\n", f"unknown setting nothing .*{file.name}"),
        ("a=b\n", str(file)),
        ("num.partitions=x", str(file)),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            load(file=file, environ={})
    with pytest.raises(ConfigError, match=r"absent\.properties"):
        load(file=tmp_path / "absent.properties", environ={})


def test_a_whole_broker_configuration_starts_a_server(tmp_path: Path) -> None:
    """Settings of a KRaft broker's properties file and of verification scripts; only those that kohort has take
    effect."""
    file = tmp_path / "server.properties"
    without_effect = """\
process.roles=broker,controller
controller.quorum.voters=1@localhost:9093
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.recovery.threads.per.data.dir=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.min.isr=1
group.consumer.assignor.offload.enable=true
group.streams.heartbeat.interval.ms=500
offsets.topic.segment.bytes=1048576
offsets.commit.timeout.ms=5000
log.flush.interval.messages=1
delete.topic.enable=true
unclean.leader.election.enable=false
replica.lag.time.max.ms=30000
max.incremental.fetch.session.cache.slots=1000
"""
    with_effect = """\
node.id=7
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
advertised.listeners=PLAINTEXT://example.org:9092
num.partitions=6
offsets.topic.replication.factor=1
log.retention.hours=2
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
group.max.session.timeout.ms=60000
group.consumer.session.timeout.ms=6000
group.consumer.min.session.timeout.ms=1000
group.consumer.heartbeat.interval.ms=500
group.consumer.min.heartbeat.interval.ms=100
group.coordinator.rebalance.protocols=classic,consumer
share.coordinator.state.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=5
transactional.id.expiration.ms=604800000
"""
    file.write_text(without_effect + with_effect)
    config = load(file=file, environ={})
    assert (config.broker_id, config.listeners, config.advertised_listeners) == (7, ":9092", "example.org:9092")
    assert (config.num_partitions, config.log_retention_ms) == (6, 7_200_000)
    assert config.transaction_state_log_num_partitions == 5
    assert set(config.without_effect) == {line.split("=")[0] for line in without_effect.splitlines()}


@pytest.mark.parametrize(
    "line",
    [
        "ssl.key.password=s3cret",
        "listener.name.ext.ssl.keystore.password=s3cret",
        'listener.name.ext.plain.sasl.jaas.config=PlainLoginModule required user_a="s3cret";',
    ],
)
def test_a_file_with_secrets_is_this_users_alone(tmp_path: Path, line: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listeners=EXT://127.0.0.1:0\nlistener.security.protocol.map=EXT:SASL_SSL\n{line}\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600") as refused:
        load(file=file, environ={})
    assert "s3cret" not in str(refused.value)
    file.chmod(0o600)
    assert "s3cret" not in repr(load(file=file, environ={}))


def test_settings_of_single_listeners(tmp_path: Path) -> None:
    names = {
        "listeners": "INT://127.0.0.1:1,EXT://127.0.0.1:2",
        "listener.security.protocol.map": "INT:PLAINTEXT,EXT:SASL_SSL",
        "ssl.client.auth": "requested",
        "listener.name.ext.ssl.client.auth": "REQUIRED",
        "connections.max.reauth.ms": "5",
        "listener.name.ext.plain.connections.max.reauth.ms": "7",
    }
    config = load(names, environ={})
    assert [listener.protocol for listener in listeners_of(config)] == ["PLAINTEXT", "SASL_SSL"]
    assert value_at(config, "EXT", "ssl.client.auth") == "required"
    assert value_at(config, "INT", "ssl.client.auth") == "requested"
    assert value_at(config, "EXT", "connections.max.reauth.ms", "PLAIN") == 7
    assert value_at(config, "EXT", "connections.max.reauth.ms", "SCRAM-SHA-256") == 5
    assert with_values(config, num_partitions=2).of_listeners == config.of_listeners


def test_the_precise_name_of_a_setting_wins_in_one_place() -> None:
    for order in (["log.retention.ms", "log.retention.hours"], ["log.retention.hours", "log.retention.ms"]):
        assert load(dict.fromkeys(order, "5"), environ={}).log_retention_ms == 5
    assert load({"log.retention.hours": "-1"}, environ={}).log_retention_ms == -1


def test_variables_of_others_are_left_alone() -> None:
    environ = {
        "KOHORT_BOOTSTRAP_SERVER": "a:1",
        "KOHORT_COMMAND_CONFIG": "client.properties",
        "KOHORT_SPARK_DECODER": "numba",
        "KOHORT_PORT": "tcp://10.0.0.1:9092",
        "KOHORT_PORT_9092_TCP_ADDR": "10.0.0.1",
        "KOHORT_SERVICE_HOST": "10.0.0.1",
        "KOHORT_SERVICE_PORT_KAFKA": "9092",
    }
    assert load(environ=environ) == Config()


def test_a_single_listener_stands_for_consecutive_ports() -> None:
    assert load({"brokers": "3"}, environ={}).listeners == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert check(Config(brokers=2, listeners="[::1]:0")).listeners == "[::1]:0,[::1]:0"
    assert (
        check(Config(brokers=2, advertised_listeners="example.org")).advertised_listeners == "example.org,example.org"
    )
    assert with_values(Config(), num_partitions=3).num_partitions == 3


def test_addresses() -> None:
    assert addresses("listeners", "localhost:1, [fe80::1%eth0]:2,int://*:3,EXT://:4,CONTROLLER://:5") == [
        ("PLAINTEXT", Address("localhost", 1)),
        ("PLAINTEXT", Address("fe80::1%eth0", 2)),
        ("INT", Address("", 3)),
        ("EXT", Address("", 4)),
    ]
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_a_server_has_a_place_for_its_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert chosen_config(None, [], {}, in_memory=False).data_dir == str(tmp_path / "kohort")
    assert chosen_config(None, ["data.dir=/d"], {}, in_memory=False).data_dir == "/d"
    assert chosen_config(None, ["data.dir=/d"], {"data.dir": "/e"}, in_memory=False).data_dir == "/e"
    assert chosen_config(None, [], {}, in_memory=True).data_dir == ""
    for settings, in_memory in ((["data.dir=/d"], True), (["data.dir="], False), (["no equals sign"], False)):
        with pytest.raises(ConfigError):
            chosen_config(None, settings, {}, in_memory=in_memory)


def test_the_list_of_settings_is_complete_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = described_settings().splitlines()
    assert {line.split("=")[0] for line in lines if not line.startswith(" ")} == set(SETTINGS)
    assert max(map(len, lines)) <= 80


def test_the_words_of_a_policy_are_taken_in_any_case() -> None:
    """Kafka's documentation uses both cases."""
    assert load({"group.consumer.migration.policy": "UPGRADE"}).group_consumer_migration_policy == "upgrade"
    with pytest.raises(ConfigError, match="it takes one of bidirectional, upgrade, downgrade, disabled"):
        load({"group.consumer.migration.policy": "both"})


def test_the_strict_mode_is_a_preset_of_settings() -> None:
    config = load({"compatibility": "kafka"}, environ={})
    assert (config.group_heartbeat_hold_enable, config.journal_enable) == (False, False)
    assert (config.group_storm_rebalance_delay_ms, config.group_consumer_assignors) == (0, "uniform,range")
    assert with_values(config, num_partitions=3).group_storm_rebalance_delay_ms == 0
    assert not any(getattr(config.deviations, name) for name in Deviations.__struct_fields__)
    assert load({"compatibility": "KAFKA", "journal.enable": "false"}, environ={}) == config
    usual = load({}, environ={})
    assert all(getattr(usual.deviations, name) for name in Deviations.__struct_fields__)


@pytest.mark.parametrize(
    ("own", "is_now", "wanted"),
    [
        ("group.heartbeat.hold.enable=true", "true", "false"),
        ("group.storm.rebalance.delay.ms=3000", "3000", "0"),
        ("journal.enable=true", "true", "false"),
        ("group.consumer.assignors=uniform,range,lag", "uniform,range,lag", "uniform,range"),
        ("group.consumer.ownership.fencing.enable=true", "true", "false"),
    ],
)
def test_what_the_strict_mode_turns_off_cannot_be_turned_on(own: str, is_now: str, wanted: str) -> None:
    name = own.partition("=")[0]
    expected = f"{name} is {is_now}, but compatibility=kafka needs {wanted}; leave out one of the two settings"
    assert refusal("compatibility=kafka", own) == expected
    variable = "KOHORT_" + name.upper().replace(".", "_")
    assert refusal("compatibility=kafka", **{variable: own.partition("=")[2]}) == expected
    assert "it takes one of kohort, kafka" in refusal("compatibility=apache")
