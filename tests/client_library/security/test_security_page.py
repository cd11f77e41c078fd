"""docs/how-to/security.md: its program runs unchanged except for addresses; the page names the supported properties."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from own_certificates import authority, issue, written
from page_programs import DOCS, programs
from sasl_broker import SaslBroker
from scripted_broker import ScriptedBroker, server_context, topic

from kohort.client import Security
from kohort.client.security import properties as security_properties

PAGE = (DOCS / "how-to" / "security.md").read_text(encoding="utf-8")
VALUES = {
    "security.protocol": "PLAINTEXT",
    "ssl.endpoint.identification.algorithm": "https",
    "enable.ssl.certificate.verification": "true",
    "ssl.enabled.protocols": "TLSv1.3",
    "ssl.protocol": "TLS",
    "sasl.jaas.config": "a.B required c=d;",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.config": "principal=x",
    "sasl.oauthbearer.extensions": "x=y",
}
"""Values of properties that do not take any text."""
NAME = re.compile(r"(?:security|ssl|sasl|https|enable)(?:\.[a-z]+)+")


def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = programs("how-to/security.md")
    ca = authority()
    sasl = SaslBroker(users={"alice": "hunter2"})
    tls = server_context(issue(ca, "127.0.0.1"), tmp_path)
    with ScriptedBroker(sasl.script(), topic("orders"), topic("payments"), tls=tls) as broker:
        program = program.replace("127.0.0.1:9093", broker.address)
        page: dict[str, Any] = {}
        exec(program.replace("/etc/kafka/ca.pem", written(tmp_path, "ca.pem", ca.certificate_pem)), page)
    assert capsys.readouterr().out == "orders payments\n"
    assert page["election"].group_id == "nightly-report"


def test_every_property_of_the_page_is_understood() -> None:
    named = set(NAME.findall(PAGE))
    assert len(named) > 25
    for name in sorted(named):
        properties = {"security.protocol": "PLAINTEXT", name: VALUES.get(name, "x")}
        if name in security_properties.CREDENTIALS:
            with pytest.raises(ValueError, match=f"{name} is set, but security.protocol=PLAINTEXT has no login"):
                Security.of(properties)
        else:
            assert Security.of(properties) == Security()
    with pytest.raises(ValueError, match=r"not a security setting that kohort's client knows: ssl.nothing"):
        Security.of({"security.protocol": "PLAINTEXT", "ssl.nothing": "x"})


def test_every_property_that_is_understood_is_on_the_page() -> None:
    source = Path(security_properties.__file__).read_text(encoding="utf-8")
    quoted = set(re.findall(r'"((?:security|ssl|sasl|https|enable)\.[a-z.]+)"', source.split("class Reading")[1]))
    without_effect = {"sasl.login.callback.handler.class"}  # says what another property implies
    assert len(quoted) > 25
    assert sorted(quoted - set(NAME.findall(PAGE)) - without_effect) == []
