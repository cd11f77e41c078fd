"""A client's connection to a gateway, and its own connection to the upstream cluster.

The client's bytes are cut at requests (requests.py). Those of groups go to `own`, a connection of kohort's broker as a
server has them; `OwnSide` is its transport. The others go to the upstream broker behind the client's listener, byte by
byte. That connection is opened with the first such request, so a connection that only heartbeats takes none. The
answers of both sides leave in the order of the requests (answers.py).

Back-pressure. The client is not read while too many bytes of its requests do not leave (buffers.py), while `own` does
not want more, and while too many of its requests are not answered or too many bytes of answers wait for an earlier one.
The upstream broker is not read while the client does not read, or while too many bytes wait for an answer of `own`.

The end of the upstream connection ends the client's, if answers are missing: clients try again. Otherwise the next
request opens another one; after a login it ends the client's connection, because the login belongs to the old one.

Before a login has succeeded (sasl.py), requests of groups are refused. Afterwards another `own` takes them, whose
principal is the user.
"""

from __future__ import annotations

import asyncio
from typing import cast

from kohort.broker.turn import Passed
from kohort.gateway.answers import Answers
from kohort.gateway.buffers import BUFFER_BYTES
from kohort.gateway.owner import Owner
from kohort.gateway.passing import rewritings_of
from kohort.gateway.requests import (
    API_VERSIONS,
    BARE,
    CONFIGS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Piece,
    Request,
    Requests,
    Route,
    why_refused,
)
from kohort.gateway.rewriting import decoded_request, encoded_answer, names_groups, no_groups, own_coordinator
from kohort.gateway.sasl import Login, answer_of, message_of
from kohort.gateway.sessions import Sessions, correlation_id_of
from kohort.gateway.sides import OwnSide, Reading, UpstreamSide, WriteLimit, has_gone
from kohort.server import open_files
from kohort.server.connection import TLS_CAME, TLS_RECORD, Connection
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest

HELD_BYTES = 262_144
"""Bytes of answers that wait for an earlier one, above which the upstream broker is not read."""
MOST_OWED = 1_000
"""Requests without an answer, above which the client is not read."""
FEW_OWED, OWED_BYTES = 100, 300
"""Each answer that is owed beyond the first ones counts as so many bytes, besides its own."""
MOST_AT_ONCE = 500
"""Requests of one client that are handled before other events of the loop: some ten milliseconds."""
CONNECT_S = 10.0
LINGER_S = 10.0
"""How long an upstream broker may take to read what a client has sent before its end, in seconds."""
GROUP = 0  # FindCoordinator's type of keys
SOFTWARE = 3
"""The first version of ApiVersions that names the client's software."""


class Link:
    """An asyncio.Protocol by its methods."""

    def __init__(self, owner: Owner, own: Connection, place: int) -> None:
        self._owner = owner
        self._own: Connection | None = own
        self.place = place
        self._listener = own.listener
        self._requests = Requests(owner.max_bytes)
        self._answers = Answers(owner.max_bytes)
        self._login = Login(owner.user_claim) if owner.clients_authenticate else None
        self._software = ("", "")
        self._backlog = b""
        """What has arrived and is not handled yet."""
        self._is_due = False
        """The loop will call `_handle`."""
        self._is_collecting = False
        """Bytes of a request that is collected count at `own`."""
        self._is_bound = False
        """A login belongs to an upstream connection that is closed."""
        self._client: asyncio.Transport | None = None
        self._upstream: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._unsent: list[bytes] = []
        """Requests that wait for the upstream connection."""
        self._unsent_bytes = 0
        self._is_unsent_unanswered = False
        """True if a Produce with acks=0 is among `_unsent`."""
        self._lingering_bytes = 0
        self._requests_limit, self._answers_limit = WriteLimit(), WriteLimit()
        self._sessions = Sessions(owner.beat_s)
        self._reading, self._upstream_reading = Reading(), Reading()

    @property
    def peer(self) -> str:
        return "?" if self._own is None else self._own.peer

    @property
    def user(self) -> str:
        """Who has logged in; "" without a login."""
        return "" if self._login is None or not self._login.is_valid(self._owner.clock()) else self._login.user

    @property
    def unsent(self) -> int:
        """Bytes of answers that the client has not read."""
        return 0 if self._client is None else self._client.get_write_buffer_size() + self._answers.held_bytes

    # -- the client's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self._own is not None
        self._client = client = cast(asyncio.Transport, transport)
        self._reading.begin(client)
        self._own.connection_made(cast(asyncio.BaseTransport, OwnSide(self, client)))
        self._answers_limit.put(client, self._owner.buffers.for_answers(0))
        self._owner.opened(self)
        if not self._owner.is_known and not client.is_closing():
            self._close("the upstream cluster has not been seen yet")

    def data_received(self, data: bytes) -> None:
        own = self._own
        if own is None or self._client is None or self._client.is_closing():
            return
        own.stirred = True
        if self._backlog:
            self._backlog += data
            return
        self._backlog = data
        self._handle()

    def _handle(self) -> None:
        """Some of the backlog; the rest after other events of the loop, and when fewer answers are owed."""
        self._is_due = False
        own = self._own
        if own is None or self._client is None or self._client.is_closing():
            return
        data = self._backlog
        try:
            pieces, self._backlog = self._requests.feed(data, MOST_AT_ONCE)
        except ProtocolError as error:
            self._close(TLS_CAME if data.startswith(TLS_RECORD) else f"malformed request: {error}")
            return
        if self._is_collecting and pieces:
            self._is_collecting = False
            own.collects(0, 0)
        forward: list[bytes] = []
        try:
            for piece in pieces:
                if piece.route is Route.OWN:
                    self._to_own(own, piece)
                elif piece.route is Route.UPSTREAM:
                    self._expect(piece.request)
                    forward.append(piece.data)
                elif piece.route is Route.WHOLE:
                    assert piece.request is not None
                    self._decide(own, piece.request, piece.data, forward)
                elif piece.request is not None:
                    raise _Refused(why_refused(piece.request))
        except (_Refused, ProtocolError) as error:
            self._forward(forward)
            self._close(str(error))
            return
        self._forward(forward)
        self._check_unanswered()
        if self._backlog:
            self._reading.pause("backlog")
            self._owner.buffers.visit(self)
            self._go_on()
            return
        self._reading.resume("backlog")
        held, missing = self._requests.collected
        if held:
            self._is_collecting = True
            own.collects(held, missing)

    def _go_on(self) -> None:
        """With the backlog, unless too many answers are owed already."""
        if self._backlog and not self._is_due and "unanswered" not in self._reading.reasons:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._handle)

    def _check_unanswered(self) -> None:
        held = self._answers.held_bytes
        if held:
            self._owner.buffers.visit(self)
        if len(self._answers) > MOST_OWED or held > BUFFER_BYTES:
            self._reading.pause("unanswered")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The objects do not refer to each other any more: the garbage collector runs rarely (memory/collector.py)."""
        self._owner.closed(self)
        own, self._own = self._own, None
        self._client = None
        self._reading.end()
        self._backlog = b""
        self._answers = Answers(self._owner.max_bytes)  # which may refer to this link
        if own is not None:
            own.connection_lost(exc)
        if self._upstream is not None:
            self._linger(self._upstream)
            self._upstream = None
        elif self._opening is not None and not (self._is_unsent_unanswered and self._lingers(self._unsent_bytes)):
            # The client has gone, so it gets no answers. It must expect that its requests were lost on their way.
            self._opening.cancel()
            self._unsent.clear()

    def pause_writing(self) -> None:
        self._upstream_reading.pause("client")
        if self._own is not None:
            self._own.pause_writing()

    def resume_writing(self) -> None:
        self._upstream_reading.resume("client")
        if self._own is not None:
            self._own.resume_writing()

    def _close(self, reason: str) -> None:
        """When everything sent has left."""
        if self._client is not None and not self._client.is_closing():
            self._owner.log.info("connection closed", peer=self.peer, reason=reason)
            self._client.close()

    def stop(self) -> None:
        """The gateway stops. Answers that wait for one of the upstream broker are not waited for."""
        if self._answers.due_from is Route.UPSTREAM and self._answers.held_bytes:
            self._close("the gateway stops")

    def abort(self) -> None:
        if self._client is not None:
            self._client.abort()

    # -- requests

    def _to_own(self, own: Connection, piece: Piece) -> None:
        if piece.request is not None:
            is_open = self._login is None or self._login.is_valid(self._owner.clock())
            if not is_open and piece.request.key != API_VERSIONS:
                raise _Refused("a request of a group without a login, or after its end")
            self._answers.expect(piece.request, Route.OWN)
            self._sessions.saw(piece.request, piece.data)
        own.data_received(piece.data)

    def _expect(self, request: Request | None) -> None:
        """A request goes to the upstream broker; None: more bytes of one."""
        if request is None:
            return
        if not request.is_answered:
            self._is_unsent_unanswered = self._upstream is None
            return
        rewriting, beginning = rewritings_of(request, self._owner, self._listener)
        self._answers.expect(request, Route.UPSTREAM, rewriting, beginning)
        if self._answers.waits_for(Route.OWN) and self._own is not None:
            self._owner.arrive(Passed(self._own.id))

    def _decide(self, own: Connection, request: Request, data: bytes, forward: list[bytes]) -> None:
        """Requests whose content, or whose listener, decides who answers."""
        key = request.key
        if key == API_VERSIONS:
            if request.version >= SOFTWARE:
                said = decoded_request(request, data, ApiVersionsRequest)
                self._software = said.client_software_name, said.client_software_version
            self._to_own(own, Piece(request, Route.OWN, data))
        elif key == LIST_GROUPS and not self._owner.is_coordinator_at(self.place):
            self._send(self._answers.made(encoded_answer(request, no_groups())))
        elif key == LIST_GROUPS or (key in CONFIGS and names_groups(request, data)):
            self._to_own(own, Piece(request, Route.OWN, data))
        elif key in (SASL_HANDSHAKE, SASL_AUTHENTICATE, BARE):
            self._sasl(request, data)
            forward.append(data)
        elif key == FIND_COORDINATOR and self._is_groups(request, data):
            pass
        else:
            self._expect(request)
            forward.append(data)

    def _is_groups(self, request: Request, data: bytes) -> bool:
        """Whether a FindCoordinator is about groups; then it is answered."""
        asked = decoded_request(request, data, FindCoordinatorRequest)
        if asked.key_type != GROUP:
            return False
        node = self._owner.coordinator()
        at = self._owner.address_of(node, self._listener)
        self._send(self._answers.made(encoded_answer(request, own_coordinator(request, asked, node, at))))
        return True

    def _sasl(self, request: Request, data: bytes) -> None:
        login = self._login
        if login is None:
            self._answers.expect(request, Route.UPSTREAM)
            return
        if request.key == SASL_HANDSHAKE:
            login.begins(decoded_request(request, data, SaslHandshakeRequest).mechanism)
            self._requests.is_bare = request.version == 0
            if self._requests.is_bare and not login.is_known:
                raise _Refused("a login of an unknown mechanism, whose messages are not requests")
        else:
            login.says(message_of(request, data))

        def read(answer: bytes) -> bytes:
            if request.key == SASL_HANDSHAKE:
                login.has_begun()
            else:
                login.answered(*answer_of(request, answer), self._owner.clock())
                self._requests.is_bare = request.key == BARE and not login.is_over
            if login.is_new:
                self._logged_in(login)
            return answer

        self._answers.expect(request, Route.UPSTREAM, read)

    def _logged_in(self, login: Login) -> None:
        login.is_new = False
        before, client = self._own, self._client
        if before is None or client is None:
            return
        if self._answers.waits_for(Route.OWN):
            self._close("a login with requests before it that are not answered")
            return
        self._reading.resume("own")
        self._own = self._owner.own_of(before, login.user, self._software)
        before.connection_lost(None)
        self._own.connection_made(cast(asyncio.BaseTransport, OwnSide(self, client)))

    # -- the upstream side

    def _forward(self, pieces: list[bytes]) -> None:
        if not pieces:
            return
        if self._is_bound:
            self._close("the connection of its login to the upstream broker is closed")
            return
        size = sum(map(len, pieces))
        limit = self._owner.buffers.for_requests(size)
        self._owner.buffers.visit(self)
        if self._upstream is None:
            self._unsent += pieces
            self._unsent_bytes += size
            if self._unsent_bytes > limit:
                self._reading.pause("connecting")
            if self._opening is None:
                self._opening = asyncio.get_running_loop().create_task(self._open())
            return
        self._requests_limit.put(self._upstream, limit)
        if len(pieces) == 1:
            self._upstream.write(pieces[0])
        else:
            self._upstream.writelines(pieces)

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._owner.connect(self.place, lambda: cast(asyncio.Protocol, UpstreamSide(self)))
        except (OSError, ValueError) as error:  # TimeoutError and SSLError among them
            self._close(f"the upstream broker cannot be reached: {error or 'no connection in time'}")
            self._unsent.clear()
            self._lingers(0)
        finally:
            self._opening = None

    def upstream_made(self, transport: asyncio.Transport) -> None:
        if refusal := open_files.refusal(transport.get_extra_info("socket").fileno()):
            self._close(refusal)
            transport.abort()
            return
        self._requests_limit = WriteLimit()
        self._requests_limit.put(transport, self._owner.buffers.for_requests(0))
        unsent, self._unsent, self._unsent_bytes, self._is_unsent_unanswered = self._unsent, [], 0, False
        transport.writelines(unsent)
        if self._client is None:  # it has gone meanwhile
            self._linger(transport)
            return
        self._upstream = transport
        self._upstream_reading.begin(transport)
        self._reading.resume("connecting")

    def _linger(self, transport: asyncio.Transport) -> None:
        """The client has gone. What it has sent arrives, as if it had sent it to the broker itself."""
        size = transport.get_write_buffer_size()
        transport.close()
        if not self._lingers(size):
            transport.abort()
        elif size:
            self._lingering = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def _lingers(self, size: int) -> bool:
        """True if `size` bytes may wait although their client has gone. 0: no bytes wait any more."""
        self._owner.buffers.lingered(self._lingering_bytes)
        may = not size or self._owner.buffers.lingers(size)
        self._lingering_bytes = size if may else 0
        return may

    def upstream_received(self, data: bytes) -> None:
        if self._client is None or self._client.is_closing():
            return
        if self._own is not None:
            self._own.stirred = True
        try:
            self._send(self._answers.feed(Route.UPSTREAM, data))
        except (ProtocolError, ValueError) as error:  # ValueError: an answer that cannot be encoded again
            self._close(f"the upstream broker's answer makes no sense: {error}")
            return
        if self._answers.held_bytes > HELD_BYTES and self._answers.due_from is Route.OWN:
            self._upstream_reading.pause("order")

    def upstream_lost(self, exc: Exception | None) -> None:
        self._upstream = None
        if self._lingering is not None:
            self._lingering.cancel()
        self._lingers(0)
        self._upstream_reading.end()
        self._upstream_reading.resume("order")
        self._reading.resume("upstream")
        self._is_bound = self._login is not None
        if self._answers.waits_for(Route.UPSTREAM) or self._requests.is_forwarding:
            self._close(f"the upstream broker has closed its connection{f': {exc}' if exc else ''}")

    def upstream_full(self, *, is_full: bool) -> None:
        if is_full:
            self._reading.pause("upstream")
        else:
            self._reading.resume("upstream")

    # -- answers

    def own_answered(self, data: bytes) -> None:
        self._send(self._answers.feed(Route.OWN, data))
        self._check_unanswered()
        if self._answers.held_bytes <= HELD_BYTES or self._answers.due_from is not Route.OWN:
            self._upstream_reading.resume("order")

    def _send(self, pieces: list[bytes]) -> None:
        if not pieces or self._client is None:
            return
        limit = self._owner.buffers.for_answers(sum(map(len, pieces)))
        if self._client.is_closing():
            return
        self._answers_limit.put(self._client, limit)
        self._owner.buffers.visit(self)
        if len(pieces) == 1:
            self._client.write(pieces[0])
        else:
            self._client.writelines(pieces)
        if len(self._answers) <= MOST_OWED // 2 and self._answers.held_bytes <= BUFFER_BYTES // 2:
            self._reading.resume("unanswered")
            self._go_on()

    def pause_own(self, *, paused: bool) -> None:
        if paused:
            self._reading.pause("own")
        else:
            self._reading.resume("own")

    def close_own(self) -> None:
        """The broker closes the connection, and has said why in the log."""
        if self._client is not None:
            self._client.close()

    # -- what it holds, and whom it keeps waiting

    def visit(self) -> Connection | None:
        own = self._own
        if own is None or self._client is None or self._client.is_closing():
            return None
        held = self._unsent_bytes + len(self._backlog) + max(0, len(self._answers) - FEW_OWED) * OWED_BYTES
        if self._upstream is not None:
            held += self._upstream.get_write_buffer_size()
        own.forwards(held)
        return own if held or self._reading.reasons or self._upstream_reading.reasons or self.unsent else None

    def tend(self) -> None:
        own, now = self._own, self._owner.clock()
        if own is None or self._client is None or self._client.is_closing():
            return
        is_stuck = bool(self._reading.reasons - {"own"})
        if self._reading.paused_for(now) > LINGER_S and is_stuck and has_gone(own.file_number):
            own.abort_for("the client has gone, and the upstream broker does not read what it sent")
            return
        due = self._sessions.due(now, is_stuck=is_stuck or self._answers.is_late)
        if not due or own.partial or (self._login is not None and not self._login.is_valid(now)):
            return
        for heartbeat in due:
            self._answers.drop(correlation_id_of(heartbeat), Route.OWN)
            own.data_received(heartbeat)


class _Refused(Exception):
    pass
