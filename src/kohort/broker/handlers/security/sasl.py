"""SaslHandshake and SaslAuthenticate where they do not belong. The server's edge authenticates connections, before the
broker gets their requests (server/security)."""

from __future__ import annotations

from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def sasl_handshake(state: BrokerState, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())


def sasl_authenticate(
    state: BrokerState, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
