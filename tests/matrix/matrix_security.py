"""The features of TLS, SASL and ACLs, at a server with a listener for each case (matrix_secured.py).

The driver enters with the settings of a case: it opens a producer, sends a record, and reads it in a group (`enter`).
The producer stays, and sends again (`send`). What a client should be refused must leave no record behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from group import until
from matrix_secured import MECHANISMS, PASSWORD, limited
from matrix_stage import Stage

from kohort.client.admin.acls import ALLOW, LITERAL, OPERATIONS, RESOURCES, AclBinding, AclFilter
from kohort.testing.secured import BEARER

Feature = Callable[[Stage], None]
REFUSAL = re.compile("^send: .*authori[sz]", re.IGNORECASE)
PATIENCE_S = 20
REFUSED_S = 4
"""A client that tries again and again until it gives up does so within this time."""


def _enter(stage: Stage, case: str, listener: str = "SASL", mechanism: str = MECHANISMS[2], **fields: Any) -> None:
    """Produce a record and read it in a group."""
    server = stage.secured
    topic = _topic(stage, case)
    with server.admin() as admin:
        admin.create_topic(topic, 1)
    settings = {
        "bootstrap": server.at(listener),
        "mechanism": mechanism,
        "user": stage.client,
        "password": PASSWORD,
        "ca": server.files["ca"],
        "own": "" if mechanism else server.files["alice"],
        "token": server.token(stage.client) if mechanism == BEARER else "",
        "token_url": server.token_url,
        "patience_s": PATIENCE_S,
    }
    stage.driver.ask("enter", name=topic, topic=topic, value="hello", **settings | fields)
    assert _count(stage, topic) == 1


def _count(stage: Stage, topic: str) -> int:
    """Records in the topic."""
    with stage.secured.admin() as admin:
        return admin.offsets([(topic, 0)])[topic, 0]


def _topic(stage: Stage, case: str) -> str:
    return f"{case}-{stage.client}"


def _is_refused(stage: Stage, case: str, **fields: Any) -> None:
    with pytest.raises(AssertionError, match=r"^enter: "):
        _enter(stage, case, patience_s=REFUSED_S, **fields)
    assert stage.driver.alive, "the client says so"
    assert _count(stage, _topic(stage, case)) == 0


def enters_with(mechanism: str) -> Feature:
    return lambda stage: _enter(stage, mechanism or "certificate", "SASL" if mechanism else "TLS", mechanism)


def has_a_wrong_password(stage: Stage) -> None:
    for mechanism in MECHANISMS:
        _is_refused(stage, f"password-{mechanism}", mechanism=mechanism, password="wrong")


def finds_another_host(stage: Stage) -> None:
    _is_refused(stage, "host", listener="OTHER")


def finds_an_expired_certificate(stage: Stage) -> None:
    _is_refused(stage, "expired", listener="PAST")


def loses_a_right(stage: Stage) -> None:
    """The right to write goes while the producer is open, and comes back."""
    server = stage.secured
    topic, user = _topic(stage, "revoked"), limited(stage.client)
    rights = [_right(user, "topic", topic, does) for does in ("read", "write")]
    with server.admin() as admin:
        admin.create_acls([*rights, _right(user, "group", topic, "read")])
    _enter(stage, "revoked", user=user)
    with server.admin() as admin:
        admin.delete_acls(AclFilter(name=topic, operation=OPERATIONS["write"]))
    with pytest.raises(AssertionError, match=REFUSAL):
        stage.driver.ask("send", name=topic, topic=topic, value="refused", patience_s=REFUSED_S)
    assert _count(stage, topic) == 1
    with server.admin() as admin:
        admin.create_acls(rights)

    def writes_again() -> bool:  # some clients go on refusing until they ask for the topic again
        try:
            stage.driver.ask("send", name=topic, topic=topic, value="again", patience_s=PATIENCE_S)
        except AssertionError as failure:
            if REFUSAL.search(str(failure)):
                return False
            raise
        return True

    until(writes_again, "the same producer writes again")
    assert _count(stage, topic) == 2


def _right(user: str, resource: str, name: str, operation: str) -> AclBinding:
    return AclBinding(RESOURCES[resource], name, LITERAL, f"User:{user}", "*", OPERATIONS[operation], ALLOW)


def renews_its_session(stage: Stage) -> None:
    """It sends all the time, and the session is renewed on a connection that stays."""
    _enter(stage, "renewed", listener="BRIEF")
    topic = _topic(stage, "renewed")
    before = stage.secured.renewed[stage.client]

    def renewed() -> bool:
        stage.driver.ask("send", name=topic, topic=topic, value="more", patience_s=PATIENCE_S)
        return stage.secured.renewed[stage.client] > before

    until(renewed, "the session is renewed")
