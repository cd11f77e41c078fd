"""Kind `broker`: stories of frames into a broker that has topics, records, groups and members.

Half of the frames are valid requests that fit the state, so that the state changes. The others are mutations of such
requests, or of randomly drawn ones. A frame that fails is reported with its whole story, and the story is made
smaller.
"""

from __future__ import annotations

import random
import struct

from fuzz_batches import MOST_EXPANDED, MOST_TAKEN
from fuzz_checks import Find, Stream, limit_s, most_bytes, peak_bytes, slowness
from fuzz_grammar import Drawn, Words, draw
from fuzz_members import members
from fuzz_mutations import Mutations
from fuzz_words import BrokerWords, DenseWords
from fuzz_world import World, told

from kohort.broker.apis import APIS
from kohort.broker.messages import changed
from kohort.simulator.actors.workload import create_request
from kohort.wire.codec import encode_request
from kohort.wire.schemas.create_topics import CreatableTopicConfig
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.produce import ProduceRequest

SETTINGS = (
    "group_max_size=2", "group_consumer_max_size=2", "group_initial_rebalance_delay_ms=0", "group_max_bytes=65536",
    "journal_enable=False", "auto_create_topics_enable=False", "group_coordinator_rebalance_protocols=classic",
    "group_heartbeat_hold_enable=False", "num_partitions=3", "group_max_former_groups=1", "message_max_bytes=2000",
    "group_max_pending_members=2", "fetch_turn_max_bytes=2000", "max_partitions=60", "group_max_configured=1",
    "group_consumer_initial_rebalance_delay_ms=3000", "group_consumer_handover_max_partitions=1",
    "group_consumer_ownership_fencing_enable=True", "group_consumer_migration_policy=disabled",
    "group_consumer_assignors=range", "offset_metadata_max_bytes=10", "compression_type=zstd",
    "log_cleanup_policy=compact", "log_message_timestamp_type=LogAppendTime", "group_consumer_regex_max_patterns=1",
    "journal_max_groups=1", "journal_max_stories_per_group=1", "queued_max_request_bytes=1048576",
)  # fmt: skip
FRAMES_A_STORY = 600
TURN_BYTES = MOST_TAKEN
"""The time of a turn besides the times for its requests, its answers and its stored bytes."""
APIS_BY_WEIGHT = [*APIS.values()] + [
    APIS[key] for key in (11, 11, 14, 12, 13, 68, 68, 68, 68, 8, 8, 9, 0, 1, 3) for _ in range(2)
]


class BrokerFuzz(Stream[bytes]):
    kind = "broker"

    def some(self, most: int) -> int:
        return Story(self.chance).run(min(FRAMES_A_STORY, most))


class Story:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.words = BrokerWords(chance)
        self.blind = Words(chance)
        self.dense = DenseWords(self.words)
        brokers = chance.choice((1, 1, 1, 3))
        settings = chance.sample(SETTINGS, chance.choice((0, 0, 1, 2)))
        self.traced = chance.random() < 0.02
        """Memory is measured in some stories: it makes them slow."""
        if self.traced:
            settings.append(f"message_max_uncompressed_bytes={MOST_EXPANDED}")
        self.lines = [" ".join(("brokers", str(brokers), *settings))]
        self.brokers = brokers
        self.world: World = told(self.lines[0])
        self.world.learned = self.heard
        self.members = members(chance)
        self.seats: dict[int, int] = {}
        """The connection of each member."""
        self.under_way: dict[int, int] = {}
        """Correlation id of the request that a member waits for: the member."""
        self.clients: list[int] = []
        self.last_client = 0
        self.correlation_id = 0

    def run(self, frames: int) -> int:
        try:
            for _ in range(3):
                self.open()
            self.furnish()
            done = 0
            while done < frames:
                done += self.some_frames()
                self.afterwards()
            self.world.check_state()
            self.world.check_restart()
        except Exception as error:
            raise Find("broker", "story", "\n".join(self.lines).encode(), error) from error
        return done

    # -- lines

    def do(self, line: str) -> None:
        self.lines.append(line)
        self.world.do(line)

    def open(self) -> int:
        self.last_client += 1
        self.clients.append(self.last_client)
        self.do(f"open {self.last_client} {self.chance.randint(1, self.brokers)}")
        return self.last_client

    def client(self) -> int:
        number = self.chance.choice(self.clients)
        client = self.world.clients.get(number)
        if client is None or client.gone:
            self.clients.remove(number)
            return self.open()
        return number

    def frame(self, data: bytes) -> None:
        self.send(self.client(), data)

    def send(self, number: int, data: bytes) -> int:
        if self.chance.random() < 0.7:
            self.do(f"frame {number} {data.hex()}")
            return len(data)
        stream = len(data).to_bytes(4, "big") + data
        pick = self.chance.random()
        if pick < 0.1:
            stream += stream
        elif pick < 0.13:
            stream = stream[: self.chance.randrange(len(stream) + 1)]
        elif pick < 0.15:
            stream = stream[2:4] + stream
        self.do(f"stream {number} {stream.hex()}")
        return len(data)

    def turn(self, size: int) -> None:
        self.lines.append("turn")
        if self.traced and self.chance.random() < 0.25:
            self.measured(size)
            return
        took = self.world.turn()
        if took > limit_s(size):
            self.too_slow(took, limit_s(size))

    def measured(self, size: int) -> None:
        world = self.world
        before = world.answered_bytes, world.storage_bytes()
        peak = peak_bytes(world.turn)
        answered, stored = world.answered_bytes - before[0], world.storage_bytes() - before[1]
        allowed = TURN_BYTES + 8 * answered + 4 * max(stored, 0)
        if peak - allowed > most_bytes(size):
            raise AssertionError(f"{peak} bytes for {size} in a turn that answered {answered} and stored {stored}")

    def too_slow(self, took: float, limit: float) -> None:
        """Repeated from the beginning, because a turn that is slow only once was slowed by the machine."""
        for _ in range(3):
            took = min(took, last_turn_s(self.lines) / slowness())
            if took <= limit:
                return
        raise AssertionError(f"a turn took {took * 1000:.0f} ms")

    # -- what is sent

    def heard(self, number: int, correlation_id: int, response: object) -> None:
        self.words.learn(response)
        index = self.under_way.pop(correlation_id, None)
        if index is not None:
            self.members[index].heard(response)

    def member_frame(self) -> int:
        """The next request of a member, unless it waits. Returns its size, or 0."""
        index = self.chance.randrange(len(self.members))
        member = self.members[index]
        seat = self.seats.get(index)
        client = self.world.clients.get(seat) if seat is not None else None
        if seat is None or client is None or client.gone:
            state = self.world.broker.state
            self.last_client += 1
            seat = self.seats[index] = self.last_client
            self.do(f"open {seat} {state.coordinator_of(state.shard_of(member.group))}")
            self.under_way = {request: waits for request, waits in self.under_way.items() if waits != index}
        if index in self.under_way.values():
            return 0
        self.correlation_id += 1
        request, version = member.request()
        frame = encode_request(request, version, self.correlation_id, "member")[4:]
        if self.chance.random() < 0.05:
            place = self.chance.randrange(17, len(frame))
            byte = self.chance.choice((0, 1, 127, 128, 255, frame[place] + 1 & 255, frame[place] - 1 & 255))
            return self.send(seat, frame[:place] + bytes((byte,)) + frame[place + 1 :])
        self.under_way[self.correlation_id] = index
        return self.send(seat, frame)

    def furnish(self) -> None:
        """Topics with records, members of groups: something to be wrong about."""
        sizes = {"orders": 3, "clicks": 1, "keyed": 1, "wide": 12}
        compact = (CreatableTopicConfig(name="cleanup.policy", value="compact"),)
        request = create_request(sizes)
        topics = (changed(topic, configs=compact) if topic.name == "keyed" else topic for topic in request.topics)
        self.valid(changed(request, topics=tuple(topics)), 7)
        for cls, version in ((ProduceRequest, 9), (OffsetCommitRequest, 8)):
            for _ in range(4):
                self.valid(draw(cls, version, self.words).message, version)
        for _ in range(20):
            self.turn(self.member_frame())
        self.do("wait 3000")

    def valid(self, request: object, version: int) -> None:
        self.correlation_id += 1
        self.frame(encode_request(request, version, self.correlation_id, "furniture")[4:])
        self.turn(1000)

    def some_frames(self) -> int:
        count = self.chance.choice((1, 1, 1, 1, 2, 5))
        size = sent = 0
        for _ in range(count):
            if self.chance.random() < 0.35:
                of_member = self.member_frame()
                size += of_member
                sent += of_member > 0
                continue
            data = self.drawn_frame()
            number = self.client()
            size += self.send(number, data)
            sent += 1
            if self.chance.random() < 0.1:
                size += self.repeated(number, data)
        self.turn(size)
        return sent

    def repeated(self, number: int, data: bytes) -> int:
        """Turns that repeat exactly may take a shorter way. Returns the bytes that wait for a turn."""
        for _ in range(3):
            self.turn(len(data))
            client = self.world.clients.get(number)
            if client is None or client.gone:
                return 0
            self.send(number, data)
        return len(data)

    def drawn_frame(self) -> bytes:
        chance = self.chance
        self.correlation_id += 1
        api = chance.choice(APIS_BY_WEIGHT)
        version = chance.randint(api.first, api.last)
        drawn = self.message(api.request, version)
        pick = chance.random()
        body = drawn.data if pick < 0.5 else Mutations(drawn.data, drawn.marks, chance).one()
        header = self.header(api.key, version, version >= api.flexible_from, pick)
        return header + body

    def message(self, cls: type, version: int) -> Drawn:
        pick = self.chance.random()
        if pick < 0.002:
            self.dense.begin(cls, version)
            return draw(cls, version, self.dense)
        return draw(cls, version, self.words if pick < 0.9 else self.blind)

    def header(self, api_key: int, version: int, flexible: bool, pick: float) -> bytes:
        chance = self.chance
        tags = b"\0" if flexible else b""
        if pick < 0.93:
            name = b"client"
        else:
            name = chance.choice((b"", b"x" * 300, b"\xff\xfe", "é".encode()))
            tags = chance.choice(
                (tags, b"\0", b"", b"\x01\x05\x02ab", b"\x02\x05\x00\x05\x00", b"\xff\xff\xff\xff\x0f")
            )
            match chance.randrange(8):
                case 0:
                    api_key = chance.choice((-1, 2, 4, 17, 36, 76, 100, 32767, -32768))
                case 1:
                    version = chance.choice((-1, version + 1, 99, 32767, -32768))
        length = len(name) if pick < 0.97 else chance.choice((-1, -2, 0, 32767, len(name) + 1))
        header = struct.pack(">hhih", api_key, version, self.correlation_id, length) + name + tags
        return header if pick < 0.995 else header[: chance.randrange(len(header))]

    def afterwards(self) -> None:
        chance = self.chance
        pick = chance.random()
        if pick < 0.08:
            self.do(f"wait {chance.choice((1, 500, 3_000, 11_000, 46_000, 700_000))}")
        elif pick < 0.10:
            self.do(f"close {chance.choice(self.clients)}")
            self.turn(100)
        elif pick < 0.11:
            self.open()
        if pick > 0.95:
            self.world.check_state()


def last_turn_s(lines: list[str]) -> float:
    """CPU time of the last turn of a story."""
    world = played(lines[:-1])
    return world.turn()


def played(lines: list[str]) -> World:
    world = told(lines[0])
    for line in lines[1:]:
        world.do(line)
    return world


def bytes_before(lines: list[str], turn: int) -> int:
    """The bytes of the frames that the turn at this line handles."""
    size = 0
    for line in reversed(lines[:turn]):
        if line == "turn":
            break
        if line.startswith(("frame", "stream")):
            size += (len(line) - line.rindex(" ")) // 2
    return size


def failure_of(story: bytes) -> str | None:
    """The kind of failure in a story, without its details; None if there is none."""
    lines = story.decode().split("\n")
    try:
        world = told(lines[0])
        for number, line in enumerate(lines[1:], 1):
            world.slowest_s = 0.0
            world.do(line)
            limit = limit_s(bytes_before(lines, number))
            if line == "turn" and world.slowest_s > limit:
                again = (last_turn_s(lines[: number + 1]) / slowness() for _ in range(3))
                if min(again) > limit:
                    return "slow"
            world.check_state()
        world.check_restart()
    except Exception as error:
        return type(error).__name__
    return None
