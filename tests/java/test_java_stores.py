"""Key and trust stores as Java's keytool makes them: PKCS12 is read, JKS refused with the commands that convert it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kohort.client import Security

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
PASSWORD = "hunter2-pa55"


def keytool(*words: str, folder: Path) -> None:
    subprocess.run(["keytool", *words, "-storepass", PASSWORD], check=True, capture_output=True, cwd=folder)


def stores(kind: str, folder: Path) -> tuple[str, str]:
    """A key store with its own certificate, and a trust store with the same."""
    key, trust, pem = (str(folder / name) for name in ("key.store", "trust.store", "own.pem"))
    made = ("-genkeypair", "-alias", "own", "-keyalg", "RSA", "-dname", "CN=alice", "-keypass", PASSWORD)
    keytool(*made, "-storetype", kind, "-keystore", key, folder=folder)
    keytool("-exportcert", "-rfc", "-alias", "own", "-keystore", key, "-file", pem, folder=folder)
    keytool("-importcert", "-noprompt", "-file", pem, "-storetype", kind, "-keystore", trust, folder=folder)
    return key, trust


def secured(key: str, trust: str) -> Security:
    properties = {"security.protocol": "SSL", "ssl.truststore.location": trust, "ssl.keystore.location": key}
    passwords = {"ssl.truststore.password": PASSWORD, "ssl.keystore.password": PASSWORD}
    return Security.of(properties | passwords)


def test_pkcs12(tmp_path: Path) -> None:
    made = secured(*stores("PKCS12", tmp_path))
    assert made.tls is not None
    assert made.tls.context().cert_store_stats()["x509"] == 1
    assert "PRIVATE KEY" in made.librdkafka()["ssl.key.pem"]


def test_jks_by_the_commands_of_its_refusal(tmp_path: Path) -> None:
    key, trust = stores("JKS", tmp_path)
    converted = []
    for store in (key, trust):
        with pytest.raises(ValueError, match="only Java reads") as refused:
            Security.of({"security.protocol": "SSL", "ssl.truststore.location": store})
        first, second = re.findall(r"((?:keytool|openssl) .*?)(?:, then|$)", str(refused.value))
        folder = tmp_path / f"of-{Path(store).name}"
        folder.mkdir()
        command = [*first.split(), "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        passwords = ["-passin", f"pass:{PASSWORD}", "-passout", f"pass:{PASSWORD}"]
        subprocess.run([*second.split(), *passwords], check=True, capture_output=True, cwd=folder)
        converted.append(str(folder / "store.pem"))
    made = secured(*converted)
    assert made.tls is not None
    assert made.tls.context().cert_store_stats()["x509"] == 1
