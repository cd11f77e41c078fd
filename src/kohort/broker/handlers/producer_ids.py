"""InitProducerId: ids for idempotent producers. Transactions are refused in a way that reaches the user."""

from __future__ import annotations

from kohort.broker.handlers.cluster import refuse_transaction
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(
    state: BrokerState, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """A new id with epoch 0, also for a producer that has one: Kafka keeps nothing to bump without transactions."""
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is not None:
        refuse_transaction(state, request.transactional_id, context)
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=state.topics.next_producer_id(), producer_epoch=0
    )
