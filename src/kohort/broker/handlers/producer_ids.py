"""InitProducerId: a new id for an idempotent producer; a transactional one gets an epoch that fences the last."""

from __future__ import annotations

from kohort.broker.handlers.transactions import refusal
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.coordinator.transactions.events import ProducerInit, ProducerReply
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED = 4
"""The first version that knows PRODUCER_FENCED."""


def init_producer_id(
    state: BrokerState, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if state.slots is not None and request.transactional_id is not None:
        # Transactions over several nodes are not served yet.
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1)
    if not state.topics.has_producer_ids:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1)
    if request.transactional_id is None:
        # A new id with epoch 0, also for a producer that has one: Kafka keeps nothing to bump without transactions.
        return InitProducerIdResponse(
            error_code=ErrorCode.NONE, producer_id=state.topics.next_producer_id(), producer_epoch=0
        )
    reply = _initialised(state, request.transactional_id, request, context)
    error = reply.error
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=error, producer_id=reply.producer_id, producer_epoch=reply.epoch)


def _initialised(
    state: BrokerState, transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> ProducerReply:
    error = refusal(state, transactional_id, context)
    if error is ErrorCode.INVALID_REQUEST:
        return ProducerReply(error)
    if not 0 < request.transaction_timeout_ms <= state.config.transaction_max_timeout_ms:
        return ProducerReply(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    if error:
        return ProducerReply(error)
    event = ProducerInit(
        context.request_id,
        transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        context.client,
    )
    reply = state.transactions.ask_owner(event)
    if reply.error is ErrorCode.CONCURRENT_TRANSACTIONS and state.config.deviations.instant_aborts:
        # The open transaction is aborted. If that was done in this turn, the producer need not ask again.
        transaction = state.transactions.owner(transactional_id).ids[transactional_id]
        if not transaction.is_prepared:
            reply = state.transactions.ask_owner(event)
    return reply
