"""Certificates of an authority that lives as long as the tests, made with `cryptography`."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PASSWORD = "store-pa55word"
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    @property
    def locked_key_pem(self) -> str:
        """PKCS8, with PASSWORD."""
        locked = BestAvailableEncryption(PASSWORD.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked).decode()

    def pkcs12(self, authority: Issued | None = None) -> bytes:
        others = None if authority is None else [authority.certificate]
        locked = BestAvailableEncryption(PASSWORD.encode())
        return pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, others, locked)

    def trusted_pkcs12(self) -> bytes:
        """A store with the certificate only, as Java's trust stores."""
        locked = BestAvailableEncryption(PASSWORD.encode())
        return pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(self.certificate, b"ca")], locked)


def authority(name: str = "kohort test authority") -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    built = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Issued(built, key)


def issue(by: Issued, *hosts: str, name: str = "broker", expired: bool = False) -> Issued:
    """A certificate for these host names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = by.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    builder = _builder(name, str(issuer), key.public_key(), expired=expired).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
    return Issued(builder.sign(by.key, hashes.SHA256()), key)


def large_certificate(by: Issued, bits: int) -> str:
    """A certificate with an RSA key of this size, as PEM. Nobody has its private key."""
    large = rsa.RSAPublicNumbers(65_537, (1 << (bits - 1)) + 1).public_key()
    built = _builder("broker", "authority", large).sign(by.key, hashes.SHA256())
    return built.public_bytes(Encoding.PEM).decode()


def written(folder: Path, name: str, content: str | bytes) -> str:
    """The path of a new file."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, expired: bool = False
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    begin, end = (now - 9 * DAY, now - DAY) if expired else (now - DAY, now + 9 * DAY)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
