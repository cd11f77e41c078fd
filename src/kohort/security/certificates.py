"""Certificates of an authority of one's own, for development and tests: `kohort certificates create`.

The authority's key is thrown away when the certificates are issued, so nobody can issue more in its name. Whoever needs
more makes all of them anew. For production, use an authority that renews certificates and revokes them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SERVER, AUTHORITY = "server.pem", "ca.pem"
SKEW = datetime.timedelta(hours=1)
"""Certificates are valid from this long ago, because clocks differ."""


def development_certificates(hosts: Sequence[str], clients: Sequence[str], days: int) -> tuple[str, Mapping[str, str]]:
    """The authority's certificate, and by the name of a file the certificates of the server and of clients, each with
    its key, as PEM. `cryptography` must be installed (ImportError)."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("kohort development authority")
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    ca = _signed(_builder(ca_name, ca_name, ca_key, ends).add_extension(constraints, critical=True), ca_key)

    def issued(name: str, names: Sequence[str]) -> str:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), ca_name, key, ends).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(host) for host in names]), False)
        return _pem(_signed(builder, ca_key)) + _key_pem(key)

    found = {SERVER: issued(hosts[0], hosts)}
    for client in clients:
        found[f"{client}.pem"] = issued(client, ())
    return _pem(ca), found


def write_certificates(folder: Path, authority: str, issued: Mapping[str, str]) -> list[Path]:
    """Write them to new files, those with keys for this user alone. Raises FileExistsError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (AUTHORITY, *issued):
        if (folder / name).exists():
            raise FileExistsError(str(folder / name))
    paths = []
    for name, text, mode in ((AUTHORITY, authority, 0o644), *((name, text, 0o600) for name, text in issued.items())):
        path = folder / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="ascii") as file:
            file.write(text)
        paths.append(path)
    return paths


def _builder(subject: Any, issuer: Any, key: Any, ends: datetime.datetime) -> Any:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.now(datetime.UTC) - SKEW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(builder: Any, key: Any) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())


def _name(name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: bytes = certificate.public_bytes(Encoding.PEM)
    return text.decode()


def _key_pem(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()
