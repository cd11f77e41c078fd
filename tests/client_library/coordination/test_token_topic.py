"""The end of a token's transaction, against a scripted coordinator; the rest is tested on Apache Kafka itself."""

from __future__ import annotations

from contextlib import closing

import pytest
from scripted_broker import ScriptedBroker

from kohort.client.coordination.token_topic import COMMIT_ATTEMPTS, _Counter
from kohort.client.errors import ServerError
from kohort.client.wire.routing import Router, Timing
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.end_txn import EndTxnRequest, EndTxnResponse

UNEXPECTED, FENCED, DONE = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.PRODUCER_FENCED, ErrorCode.NONE


@pytest.mark.parametrize(
    ("answers", "raised", "asked"),
    [
        ([DONE], None, 1),
        ([UNEXPECTED, DONE], None, 2),
        ([UNEXPECTED, UNEXPECTED, FENCED], FENCED, 3),
        ([UNEXPECTED] * COMMIT_ATTEMPTS, UNEXPECTED, COMMIT_ATTEMPTS),
        ([ErrorCode.INVALID_TXN_STATE], ErrorCode.INVALID_TXN_STATE, 1),
    ],
)
def test_a_commit_that_the_server_failed_to_decide(
    answers: list[ErrorCode], raised: ErrorCode | None, asked: int
) -> None:
    left = iter(answers)

    with ScriptedBroker({EndTxnRequest: lambda *_: EndTxnResponse(error_code=next(left))}) as broker:
        router = Router(broker.address, "test", Timing(backoff=1, backoff_max=2))
        counter = _Counter(router, "tokens", "k")
        with closing(router):
            if raised is None:
                counter.commit()
            else:
                with pytest.raises(ServerError) as caught:
                    counter.commit()
                assert caught.value.code == raised
        assert len(broker.seen(EndTxnRequest)) == asked
