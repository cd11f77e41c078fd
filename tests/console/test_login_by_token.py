"""The login with a bearer token, at a cluster that checks its signature."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from console_pages import ORIGIN, Page
from test_login import Login

from kohort.cli.connect import ClusterOptions
from kohort.cli.console.logins import logins_of
from kohort.client.cluster import Cluster
from kohort.client.security.sasl import OAuthBearer
from kohort.config import AUTHORIZER
from kohort.console.bearer import LONGEST, claims_of
from kohort.console.sessions import LIFE_S
from kohort.testing import KohortServer


@pytest.fixture
def properties(tmp_path: Path) -> Callable[..., ClusterOptions]:
    def made(**more: str) -> ClusterOptions:
        file = tmp_path / "client.properties"
        found = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **more}
        file.write_text("".join(f"{key}={value}\n" for key, value in found.items()))
        return ClusterOptions(command_config=file)

    return made


class TokenLogin(Login):
    def __init__(self, server: KohortServer, where: ClusterOptions) -> None:
        super().__init__(server)
        logins = logins_of(where, wanted=True)
        assert logins is not None
        logins.check(server.bootstrap_servers, 3_000)
        self.entrance.user_claim = logins.user_claim
        self.entrance.open_as = lambda user, secret: lambda: self.opened(logins.security(user, secret))

    def opened(self, security: Any) -> Cluster:
        self.asked.append("")
        return Cluster(self.bootstrap, security=security)

    def paste(self, token: str, status: int = 200) -> Page:
        page = self.get("/login", next="/access")
        [form] = page.attributes("form")
        assert form["method"] == "post"
        assert [found["name"] for found in page.attributes("input")] == ["next", "bearer"]
        answer = self.client.post(form["action"], data={"bearer": token, "next": "/access"}, headers={"origin": ORIGIN})
        assert answer.status_code == status, answer.text
        assert len(token) < 20 or token not in answer.text + str(answer.url) + str(answer.headers)
        return Page(answer.text)


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(
        security="SASL_PLAINTEXT", authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS;User:alice"
    ) as running:
        yield running


@pytest.fixture
def login(server: KohortServer, properties: Callable[..., ClusterOptions]) -> Iterator[TokenLogin]:
    with TokenLogin(server, properties()) as made:
        yield made


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def token_of(claims: object, signature: str = "c2lnbmVk") -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256'})}.{part(claims)}.{signature}"


def test_a_token_is_the_user(server: KohortServer, login: TokenLogin, lines: pytest.LogCaptureFixture) -> None:
    token = server.bearer_token("alice", life_s=600)
    page = login.paste(f"  {token}\n")
    assert "<h1>Access</h1>" in page.html
    assert "alice" in page.text
    told = [record.getMessage() for record in lines.records if record.name == "kohort.console"]
    assert told == ["event=login by_user=alice by_host=testclient"]
    [session] = login.entrance.sessions._known.values()
    parts = token.split(".")
    for shown in (lines.text, repr(session), f"{session.console.answers!r}{vars(session.console.answers)}"):
        assert not any(part in shown for part in parts)
    login.client.cookies.clear()
    login.paste(server.bearer_token("bob", life_s=600))
    assert "bob" in login.get("/").text, "another user"


def test_the_session_ends_with_the_token(server: KohortServer, login: TokenLogin) -> None:
    login.paste(server.bearer_token("alice", life_s=600))
    login.clock.now += 599
    assert login.client.get("/access", follow_redirects=False).status_code == 200
    login.clock.now += 2
    assert login.client.get("/access", follow_redirects=False).status_code == 303
    login.paste(server.bearer_token("alice", life_s=10 * LIFE_S))
    [session] = login.entrance.sessions._known.values()
    assert session.ends_at == login.clock.now + LIFE_S


def test_tokens_that_the_cluster_refuses(
    server: KohortServer, login: TokenLogin, lines: pytest.LogCaptureFixture
) -> None:
    head, claims, signature = server.bearer_token("alice", life_s=600).split(".")
    eve = token_of({**json.loads(base64.urlsafe_b64decode(claims + "==")), "sub": "eve"}).split(".")[1]
    for _ in range(5):
        page = login.paste(f"{head}.{eve}.{signature}", 403)
        assert "The cluster refused this token." in page.text
    assert len(login.paused) == 5
    assert "too many failed logins" in login.paste(f"{head}.{eve}.{signature}", 429).text
    assert len(login.asked) == 5, "the cluster is not asked again"
    told = [record.getMessage() for record in lines.records if record.name == "kohort.console"]
    assert told[0].startswith('event="login refused" by_user=eve by_host=testclient reason="OAUTHBEARER: ')
    assert not any(part in lines.text for part in (head, eve, signature))


def test_tokens_of_which_the_cluster_is_not_asked(server: KohortServer, login: TokenLogin) -> None:
    expired = login.paste(server.bearer_token("alice", life_s=-60), 403)
    assert "The token has expired." in expired.text
    [_, field] = expired.attributes("input")
    assert (field["type"], field.get("value"), field["aria-invalid"]) == ("password", None, "true")
    for token, problem in (
        ("", "Paste the token."),
        ("alice", "This is no bearer token"),
        ("a.b.c", "This is no bearer token"),
        ("x" * (LONGEST + 1), "The token is too long"),
        (token_of({"exp": 1e12}), "The token names no user"),
    ):
        assert problem in login.paste(token, 400).text
    assert login.asked == login.paused == []


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ([], "no bearer token"),
        ({"sub": "", "exp": 1}, "names no user"),
        ({"sub": "a\nb", "exp": 1}, "names no user"),
        ({"sub": ["a"], "exp": 1}, "names no user"),
        ({"sub": "a"}, "when it expires"),
        ({"sub": "a", "exp": "1"}, "when it expires"),
        ({"sub": "a", "exp": True}, "when it expires"),
        ({"sub": "a", "exp": math.inf}, "when it expires"),
        ({"sub": "a", "exp": 10**400}, "when it expires"),
    ],
)
def test_claims_that_are_not_what_they_should_be(claims: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        claims_of(token_of(claims), "sub")


def test_claims() -> None:
    assert claims_of(token_of({"sub": "x", "email": "a@b", "exp": 12.5}), "email") == ("a@b", 12.5)
    deep = base64.urlsafe_b64encode(b"[" * 10_000).decode()
    with pytest.raises(ValueError, match="no bearer token"):
        claims_of(f"a.{deep}.c", "sub")


def test_a_cluster_that_takes_the_token_no_longer_ends_the_session(server: KohortServer, login: TokenLogin) -> None:
    login.paste(server.bearer_token("alice", life_s=600))
    asyncio.run(login.entrance.check_again())
    assert len(login.entrance.sessions) == 1
    [session] = login.entrance.sessions._known.values()
    session.console.answers.open_cluster = login.entrance.open_as("alice", token_of({"sub": "alice", "exp": 1e11}))
    asyncio.run(login.entrance.check_again())
    assert len(login.entrance.sessions) == 0


def test_when_users_log_in_with_tokens(properties: Callable[..., ClusterOptions]) -> None:
    found = logins_of(properties(), wanted=False)
    assert found is not None, "without a source of tokens the console cannot connect by itself"
    assert found.user_claim == "sub"
    sasl = found.security("alice", "x.y.z").sasl
    assert isinstance(sasl, OAuthBearer)
    assert sasl.source.token(0) == "x.y.z"
    assert "x.y.z" not in repr(found.security("alice", "x.y.z"))
    oidc = {
        "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
        "sasl.oauthbearer.client.id": "console",
        "sasl.oauthbearer.client.secret": "x",
        "sasl.oauthbearer.extensions": "logicalCluster=one",
    }
    assert logins_of(properties(**oidc), wanted=False) is None
    found = logins_of(properties(**oidc, **{"sasl.oauthbearer.sub.claim.name": "email"}), wanted=True)
    assert found is not None
    sasl = found.security("alice", "x.y.z").sasl
    assert isinstance(sasl, OAuthBearer)
    assert (found.user_claim, sasl.source.token(0), sasl.extensions) == (
        "email",
        "x.y.z",
        (("logicalCluster", "one"),),
    )
    with pytest.raises(typer.BadParameter, match=r"ssl\.nonsense"):
        logins_of(properties(**{"ssl.nonsense": "1"}), wanted=True)
