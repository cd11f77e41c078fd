"""The login, at a cluster with SCRAM and ACLs, whose users see and may do different things."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from console_pages import ORIGIN, Page, Pages
from starlette.testclient import TestClient

from kohort.cli.connect import ClusterOptions, Failed
from kohort.cli.console.logins import logins_of
from kohort.client.admin.acls import ALLOW, LITERAL, OPERATIONS, RESOURCES, AclBinding
from kohort.client.cluster import Cluster
from kohort.client.security.sasl import Plain, Scram
from kohort.config import AUTHORIZER
from kohort.console.access import Access
from kohort.console.login import (
    COOKIE,
    KNOWN_S,
    MOST_KNOWN,
    PER_ADDRESS,
    PER_USER,
    SAFE_COOKIE,
    WINDOW_S,
    Attempt,
    Attempts,
    Entrance,
    own_address,
)
from kohort.console.sessions import IDLE_S, LIFE_S, MOST, MOST_OF_USER, Sessions
from kohort.testing import KohortServer

USERS = {"alice": "alice's secret", "bob": "bob's secret"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Login(Pages):
    """A console with a login, whose clock is the test's. `asked` has the users whose passwords the cluster was asked
    about, `paused` how long failed logins were held back."""

    def __init__(self, server: KohortServer, *, patience_ms: int = 20_000, **settings: object) -> None:
        self.clock = Clock()
        self.asked: list[str] = []
        self.paused: list[float] = []
        bootstrap = server.bootstrap_servers

        def open_as(user: str, password: str) -> Callable[[], Cluster]:
            self.asked.append(user)
            security = {**self.security, "sasl.username": user, "sasl.password": password}
            return lambda: Cluster(bootstrap, bootstrap_timeout_ms=patience_ms, security=security)

        async def pause(seconds: float) -> None:
            self.paused.append(seconds)

        self.entrance = Entrance(open_as, clock=self.clock, pause=pause)
        access = Access(login=True, allow_changes=True)
        super().__init__(bootstrap, access=access, entrance=self.entrance, **settings)

    @property
    def security(self) -> dict[str, str]:
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}

    def log_in(self, user: str, password: str = "", *, status: int = 200, next: str = "/") -> Page:
        page = self.get("/login", next=next)
        [form] = page.attributes("form")
        data = {"user": user, "password": password or USERS[user], "next": next}
        answer = self.client.post(form["action"], data=data, headers={"origin": ORIGIN})
        assert answer.status_code == status, answer.text
        self.address = str(answer.url)
        return Page(answer.text)

    def wait(self, path: str, text: str) -> Page:
        """The page once it has the text: a thread reads for it."""
        while text not in (page := self.get(path)).text:
            time.sleep(0.02)
        return page


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(
        security="SASL_PLAINTEXT",
        users=USERS,
        authorizer_class_name=AUTHORIZER,
        super_users="User:ANONYMOUS;User:alice",
    ) as running:
        running.create_topic("orders")
        with Cluster(running.bootstrap_servers, security=as_user(running, "alice")) as cluster:
            cluster.commit("billing", {("orders", 0): 0})
            cluster.commit("bobs", {("orders", 0): 0})
            cluster.create_acls(
                [
                    AclBinding(RESOURCES[kind], name, LITERAL, "User:bob", "*", OPERATIONS["describe"], ALLOW)
                    for kind, name in (("group", "bobs"), ("topic", "orders"))
                ]
            )
        yield running


def as_user(server: KohortServer, user: str) -> dict[str, str]:
    found = {key: str(value) for key, value in server.client_config(user=user).items()}
    del found["bootstrap.servers"]
    return found


@pytest.fixture
def login(server: KohortServer) -> Iterator[Login]:
    with Login(server) as made:
        yield made


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "kohort.console")
    return caplog


# -- before the login


def test_nothing_is_shown_before_the_login(login: Login) -> None:
    answer = login.client.get("/group?id=a%26b&tab=members", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/login?next=%2Fgroup%3Fid%3Da%2526b%26tab%3Dmembers",
    )
    assert login.client.get("/", follow_redirects=False).headers["location"] == "/login"
    assert login.client.get("/live/groups").status_code == 401
    post = login.client.post("/plan/1", data={}, headers={"origin": ORIGIN})
    assert "The session is over. Nothing was changed." in post.text
    page = login.get("/login")
    assert "<h1>Log in</h1>" in page.html
    assert all(login.client.get(link["href"]).status_code == 200 for link in page.attributes("link"))
    answer = login.client.get("/", headers={"cookie": f"{COOKIE}=guess"}, follow_redirects=False)
    assert answer.status_code == 303
    assert login.asked == []


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("/group?id=a", "/group?id=a"),
        ("", "/"),
        ("//attacker.example", "/"),
        ("/\\attacker.example", "/"),
        ("https://attacker.example", "/"),
        ("/a\r\nset-cookie: x", "/"),
        ("/logout", "/"),
    ],
)
def test_a_login_leads_to_pages_of_the_console_only(given: str, found: str) -> None:
    assert own_address(given) == found


# -- the login


def test_log_in_and_out(login: Login, lines: pytest.LogCaptureFixture) -> None:
    page = login.log_in("alice", next="/topics?q=x")
    assert login.address == f"{ORIGIN}/topics?q=x"
    assert "alice" in page.text
    cookie = login.client.cookies.get(COOKIE)
    assert cookie is not None
    assert len(cookie) >= 43
    [form] = [found for found in page.attributes("form") if found["action"] == "/logout"]
    answer = login.client.post("/logout", data={"token": ""}, headers={"origin": ORIGIN})
    assert answer.status_code == 403, "without the token"
    token = next(found["value"] for found in page.attributes("input") if found["name"] == "token")
    answer = login.client.post(form["action"], data={"token": token}, headers={"origin": ORIGIN})
    assert "<h1>Log in</h1>" in answer.text
    assert login.client.cookies.get(COOKIE) is None
    answer = login.client.get("/", headers={"cookie": f"{COOKIE}={cookie}"}, follow_redirects=False)
    assert answer.status_code == 303, "the cookie opens nothing any more"
    assert lines.messages == [
        "event=login by_user=alice by_host=testclient",
        "event=logout by_user=alice by_host=testclient",
    ]


def test_the_cookie(server: KohortServer) -> None:
    with Login(server, hosts=frozenset({"console.example"})) as login:
        for origin, name, flags in (
            ("https://console.example", SAFE_COOKIE, "HttpOnly; Path=/; SameSite=strict; Secure"),
            ("http://console.example", COOKIE, "HttpOnly; Path=/; SameSite=strict"),
        ):
            # With the first origin a proxy before the console has TLS.
            client = TestClient(login.client.app, base_url=origin.replace("https", "http"))
            data = {"user": "bob", "password": USERS["bob"]}
            answer = client.post("/login", data=data, headers={"origin": origin}, follow_redirects=False)
            assert re.fullmatch(rf"{name}=[\w-]{{43}}; {flags}", answer.headers["set-cookie"])


def test_a_wrong_password(login: Login, lines: pytest.LogCaptureFixture) -> None:
    page = login.log_in("alice", "not alice's secret", status=403)
    assert "The cluster refused this user and password." in page.text
    assert "not alice" not in page.html, "the password is not shown"
    assert page.attributes("input")[1]["value"] == "alice"
    assert 0 < login.paused[0] <= 1
    assert login.client.cookies.get(COOKIE) is None
    assert "The cluster refused this user and password." in login.log_in("nobody", "x", status=403).text
    assert login.log_in("\0", "x", status=403)
    assert "Write the password." in login.client.post("/login", data={"user": "a"}, headers={"origin": ORIGIN}).text
    assert "Write the user." in login.client.post("/login", data={"password": "a"}, headers={"origin": ORIGIN}).text
    assert lines.messages[0].startswith(
        'event="login refused" by_user=alice by_host=testclient reason="SCRAM-SHA-512: '
    )
    assert not [line for line in lines.messages if "secret" in line]


def test_failed_logins_are_few(login: Login) -> None:
    for _ in range(5):
        login.log_in("alice", "wrong", status=403)
    assert "too many failed logins. Try again in 5 min." in login.log_in("alice", status=429).text
    assert login.asked == ["alice"] * 5, "the cluster is not asked again"
    login.log_in("bob")
    login.clock.now = WINDOW_S
    login.client.cookies.clear()
    login.log_in("alice")


def test_attempts_have_limits() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    begun = [attempts.begin("10.0.0.1", f"user-{number}") for number in range(PER_ADDRESS)]
    assert all(isinstance(one, Attempt) for one in begun), "those under way count, too"
    assert attempts.begin("10.0.0.1", "another") == WINDOW_S
    first = begun[0]
    assert isinstance(first, Attempt)
    attempts.succeeded(first)
    assert isinstance(attempts.begin("10.0.0.1", "another"), Attempt)
    for number in range(2, 6):
        for user in range(PER_ADDRESS):
            attempts.begin(f"10.0.0.{number}", f"user-{user}")
    clock.now = 100
    assert attempts.begin("10.0.0.9", "user") == WINDOW_S - 100, "of all"
    clock.now = WINDOW_S
    assert isinstance(attempts.begin("10.0.0.9", "user"), Attempt)


def test_who_has_logged_in_before_is_not_kept_out_by_others() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    first = attempts.begin("10.0.0.1", "alice")
    assert isinstance(first, Attempt)
    attempts.succeeded(first)
    for number in range(1, 6):
        for user in range(PER_ADDRESS):
            attempts.begin(f"10.0.0.{number}", f"user-{user}")
    assert attempts.begin("10.0.0.1", "bob") == attempts.begin("10.0.0.7", "alice") == WINDOW_S
    for _ in range(PER_USER):
        assert isinstance(attempts.begin("10.0.0.1", "alice"), Attempt)
    assert attempts.begin("10.0.0.1", "alice") == WINDOW_S
    clock.now = KNOWN_S - 1
    for number in range(1, PER_ADDRESS + 1):
        attempts.begin("10.0.0.1", f"user-{number}")
    assert isinstance(attempts.begin("10.0.0.1", "alice"), Attempt)
    clock.now = KNOWN_S
    assert attempts.begin("10.0.0.1", "alice") == WINDOW_S - 1
    for number in range(MOST_KNOWN + 1):
        attempts.succeeded(Attempt(clock.now, "10.0.0.1", f"user-{number}"))
    assert len(attempts._known) == MOST_KNOWN


def test_a_cluster_that_does_not_answer_is_no_failed_login() -> None:
    with KohortServer(security="SASL_PLAINTEXT", users={"alice": "x"}) as server:
        login = Login(server, patience_ms=50)
        server.stop()
        with login:
            for _ in range(6):
                assert "The cluster does not answer: " in login.log_in("alice", "x", status=503).text
    assert login.paused == []


# -- sessions


def test_sessions_end(login: Login) -> None:
    login.log_in("alice")
    login.clock.now += IDLE_S - 1
    assert login.client.get("/nodes", follow_redirects=False).status_code == 200
    login.clock.now += IDLE_S - 1
    assert login.live("nodes"), "a page that is open is no use"
    login.clock.now += 1
    assert login.client.get("/nodes", follow_redirects=False).status_code == 303
    assert login.client.get("/live/nodes").status_code == 401
    login.log_in("alice")
    for _ in range(int(LIFE_S // 1_000)):
        login.clock.now += 1_000
        assert login.client.get("/nodes", follow_redirects=False).status_code == 200
    login.clock.now += 1_000
    assert login.client.get("/nodes", follow_redirects=False).status_code == 303


class Closing:
    """Stands for a console of a user."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_sessions_are_limited_and_closed() -> None:
    clock = Clock()
    sessions = Sessions(clock)

    def begin(user: str) -> tuple[str, Closing]:
        console = Closing(user)
        clock.now += 1
        return sessions.begin(console), console  # type: ignore[arg-type]

    mine = [begin("alice") for _ in range(MOST_OF_USER)]
    assert sessions.find(mine[0][0], uses=True)
    begin("alice")
    assert [console.closed for _, console in mine[:3]] == [False, True, False], "the one used longest ago"
    for number in range(MOST):
        begin(f"user-{number}")
    assert len(sessions) == MOST
    assert all(console.closed for _, console in mine)
    last, console = begin("last")
    found = sessions.find(last, uses=False)
    assert found is not None
    assert not found.is_over()
    clock.now += IDLE_S
    sessions.sweep()
    assert (len(sessions), console.closed, found.is_over()) == (0, True, True)
    assert not sessions.find(last, uses=True)


# -- what users see and may do


def test_acls_decide(login: Login, lines: pytest.LogCaptureFixture) -> None:
    login.log_in("bob")
    page = login.wait("/", "1–1 of 1 groups")
    assert "bobs" in page.text
    assert "billing" not in page.text
    refused = login.send("/change/reset-offsets?group=bobs", to="latest")
    assert "Set 1 offset of group bobs?" in refused.text
    plan = login.address.removeprefix(ORIGIN)
    done = login.send(plan)
    assert "GROUP_AUTHORIZATION_FAILED" in done.text
    assert "<h1>Not done</h1>" in done.html
    assert "by_user=bob by_host=testclient outcome=refused" in lines.messages[-1]
    login.send("/change/reset-offsets?group=bobs", to="latest")
    waiting = login.address.removeprefix(ORIGIN)
    login.client.cookies.clear()
    login.log_in("alice")
    assert "too old" in login.get(waiting, status=404).text, "the plan of another user"
    page = login.wait("/", "billing")
    assert "bobs" in page.text
    login.send("/change/delete-group?group=bobs")
    assert "Deleted group bobs." in login.send(login.address.removeprefix(ORIGIN), typed="bobs").text
    assert "by_user=alice" in lines.messages[-1]
    told = login.get("/group", id="bobs", tab="rebalances").text
    assert "on 127.0.0.1 (user alice) deleted 1 committed offset" in told, "the cluster's journal names the user"


def test_a_user_who_is_deleted_is_logged_out(server: KohortServer, login: Login) -> None:
    with Cluster(server.bootstrap_servers, security=as_user(server, "alice")) as cluster:
        cluster.add_scram_user("carol", "carol's")
        login.log_in("carol", "carol's")
        cluster.delete_scram_user("carol")
    page = login.get("/group?id=bobs")
    assert "The session is over. Nothing was changed." in page.text
    assert len(login.entrance.sessions) == 0


def test_a_user_who_is_deleted_loses_the_session_also_with_connections(
    server: KohortServer, login: Login, lines: pytest.LogCaptureFixture
) -> None:
    with Cluster(server.bootstrap_servers, security=as_user(server, "alice")) as cluster:
        cluster.add_scram_user("dora", "dora's")
        login.log_in("dora", "dora's")
        login.get("/access")
        asyncio.run(login.entrance.check_again())
        assert len(login.entrance.sessions) == 1
        cluster.delete_scram_user("dora")
    login.get("/access")
    assert "<h1>Access</h1>" in login.get("/access").html, "the connections live on"
    asyncio.run(login.entrance.check_again())
    assert "<h1>Log in</h1>" in login.get("/access").html
    assert lines.messages[-1].startswith('event="session ended" by_user=dora reason="SCRAM-SHA-512: ')


def test_sessions_outlive_a_cluster_that_does_not_answer() -> None:
    with (
        KohortServer(security="SASL_PLAINTEXT", users={"alice": "x"}) as server,
        Login(server, patience_ms=50) as login,
    ):
        login.log_in("alice", "x")
        server.stop()
        asyncio.run(login.entrance.check_again())
        assert len(login.entrance.sessions) == 1


def test_with_tls_only_the_safe_cookie_counts(login: Login) -> None:
    login.log_in("alice")
    token = login.client.cookies[COOKIE]
    secured = TestClient(login.client.app, base_url=ORIGIN.replace("http", "https"), follow_redirects=False)
    for name, status in ((COOKIE, 303), (SAFE_COOKIE, 200)):
        assert secured.get("/nodes", headers={"cookie": f"{name}={token}"}).status_code == status


def test_a_form_of_another_session(login: Login) -> None:
    page = login.log_in("bob")
    token = next(found["value"] for found in page.attributes("input") if found["name"] == "token")
    login.client.cookies.clear()
    login.log_in("alice")
    answer = login.client.post("/logout", data={"token": token}, headers={"origin": ORIGIN})
    assert answer.status_code == 403


def test_nothing_secret_is_printed(login: Login) -> None:
    login.log_in("alice")
    [session] = login.entrance.sessions._known.values()
    assert USERS["alice"] not in f"{session!r}{login.entrance!r}{vars(login.entrance)}"
    assert session.console.token not in repr(session)


# -- the command's settings


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., ClusterOptions]:
    def made(**properties: str) -> ClusterOptions:
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in properties.items()))
        return ClusterOptions(command_config=file)

    return made


def test_when_users_log_in(options: Callable[..., ClusterOptions]) -> None:
    protocol = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    for given in ({}, {"sasl_username": "nobody"}):
        assert logins_of(options(**protocol, **given), wanted=False)
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";'
    for given in ({"sasl_username": "a", "sasl_password": "b"}, {"sasl_jaas_config": jaas}):
        assert logins_of(options(**protocol, **given), wanted=False) is None
        found = logins_of(options(**protocol, **given), wanted=True)
        assert found is not None
        assert found.security("alice", "x").sasl == Scram("SCRAM-SHA-256", "alice", "x")
    found = logins_of(options(**protocol | {"sasl_mechanism": "PLAIN"}), wanted=False)
    assert found is not None
    assert found.security("alice", "x").sasl == Plain("alice", "x")
    assert logins_of(ClusterOptions(), wanted=False) is None
    kerberos = protocol | {"sasl_mechanism": "GSSAPI"}
    assert logins_of(options(**kerberos), wanted=False) is None
    for where in (ClusterOptions(), options(**kerberos), options(security_protocol="SSL")):
        with pytest.raises(
            typer.BadParameter, match="users log in with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
        ):
            logins_of(where, wanted=True)
    with pytest.raises(typer.BadParameter, match=r"ssl\.nonsense"):
        logins_of(options(**protocol, ssl_nonsense="1"), wanted=False)


def test_the_cluster_is_asked_whether_it_takes_logins(
    server: KohortServer, options: Callable[..., ClusterOptions]
) -> None:
    def check(bootstrap: str, mechanism: str = "SCRAM-SHA-512") -> None:
        logins = logins_of(options(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism), wanted=True)
        assert logins is not None
        logins.check(bootstrap, 3_000)

    check(server.bootstrap_servers)
    with KohortServer() as plain:
        stopped = plain.bootstrap_servers
        with pytest.raises(Failed) as failed:
            check(stopped)
        assert "has no SASL, so nobody can log in there" in failed.value.message
    with pytest.raises(Failed) as failed:
        check(stopped)
    assert failed.value.exit_code == 3
    with KohortServer(security="SASL_PLAINTEXT", users={"a": "b"}, sasl_enabled_mechanisms="SCRAM-SHA-256") as narrow:
        with pytest.raises(Failed) as failed:
            check(narrow.bootstrap_servers)
        assert "takes no logins by SCRAM-SHA-512; sasl.mechanism can be one of SCRAM-SHA-256" in failed.value.message
