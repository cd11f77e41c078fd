"""TLS contexts from the settings of a Kafka client, and what a failed handshake means.

The broker's certificate and its host name are verified, unless the settings say otherwise. Only the given authorities
are trusted; without any, the system's. As in Java's trust stores, each given certificate is trusted by itself, whether
or not it is self-signed.

Files are read again when they have changed, so that a program that runs for months uses renewed certificates for its
next connection. Python's `ssl` reads a client's key from files only, so a key that is given as text is written for an
instant to a file that only this user may read.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from functools import lru_cache

from kohort.client.errors import AuthenticationFailed, ConnectionFailed, KafkaError
from kohort.security.keystores import pem_of
from kohort.security.pem_files import as_file, short

EXPIRED, NOT_YET_VALID = 10, 9
OTHER_HOST = {62, 64}
UNKNOWN_ISSUER = {2, 18, 19, 20, 21}
"""OpenSSL's error numbers for certificates (X509_V_ERR_…)."""

NO_CERTIFICATE = "none"
"""Passed to OpenSSL for an empty text, which Python would refuse."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The values of the `ssl.…` properties. The fields `…_name` are property names, for error messages."""

    trust: str | None = None
    """A file or folder of authorities; None: `trust_pem`, else the system's."""
    trust_pem: str | None = field(default=None, repr=False)
    trust_password: str | None = field(default=None, repr=False)
    trust_name: str = "ssl.truststore.location"
    certificate: str | None = None
    """A file with this client's certificate and those that lead to an authority."""
    certificate_pem: str | None = field(default=None, repr=False)
    certificate_name: str = "ssl.keystore.location"
    key: str | None = None
    """A file with the client's key; None: `key_pem`, else the key is beside the certificate."""
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    store_password: str | None = field(default=None, repr=False)
    verify: bool = True
    verify_host: bool = True
    oldest: str | None = None
    """TLSv1.2 or TLSv1.3; None: Python's default."""
    newest: str | None = None

    @property
    def presents_certificate(self) -> bool:
        return self.certificate is not None or self.certificate_pem is not None

    def context(self) -> ssl.SSLContext:
        """The context for connections. Raises ValueError, which names the wrong property."""
        return _context(self, tuple(_stamp(path) for path in (self.trust, self.certificate, self.key)))


def refusal(address: str, error: OSError) -> KafkaError:
    """The exception for a TLS error: a ConnectionFailed if a retry may help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(address, f"the broker's certificate is refused: {_about_certificate(error)}")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) or not isinstance(error, ssl.SSLError):
        return ConnectionFailed(
            address,
            "closed the connection in the TLS handshake, as a listener without TLS does; see security.protocol",
        )
    reason = str(error.reason or error).upper()
    if "CERTIFICATE_REQUIRED" in reason:
        return AuthenticationFailed(address, "the broker wants a certificate of this client: see ssl.keystore.location")
    if "ALERT" in reason:
        said = reason.partition("ALERT_")[2].lower().replace("_", " ")
        hint = "; see ssl.keystore.location" if "certificate" in said or said == "unknown ca" else ""
        return AuthenticationFailed(address, f"the broker refused the TLS handshake: {said or reason}{hint}")
    if any(word in reason for word in ("WRONG_VERSION_NUMBER", "RECORD_LAYER", "PACKET_LENGTH", "HTTP_REQUEST")):
        return AuthenticationFailed(
            address, "the server does not speak TLS; set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        )
    return AuthenticationFailed(address, f"the TLS handshake failed: {reason.lower().replace('_', ' ')}")


def looks_like_tls(start: bytes | bytearray) -> bool:
    """True if a broker's first bytes are a TLS record: an alert or a handshake message."""
    return len(start) >= 2 and start[0] in (0x15, 0x16) and start[1] == 0x03


def looks_like_http(start: bytes | bytearray) -> bool:
    """True if the first bytes are those of a web server's answer. As a frame's length they would be a gigabyte."""
    return bytes(start[:4]) in (b"HTTP", b"<!DO", b"<htm")


def _about_certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == EXPIRED:
        return "it has expired"
    if error.verify_code == NOT_YET_VALID:
        return "it is not valid yet"
    if error.verify_code in OTHER_HOST:
        return f"it is another host's ({error.verify_message.rstrip('.')})"
    if error.verify_code in UNKNOWN_ISSUER:
        return (
            f"no authority that this client trusts has signed it ({error.verify_message}); "
            "add its authority to ssl.truststore.location or ssl.ca.location"
        )
    return error.verify_message


def _stamp(path: str | None) -> tuple[int, int] | None:
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return None  # reading the file raises the error
    return None if found is None else (found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=16)
def _context(tls: Tls, stamps: object) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify and tls.verify_host
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if tls.oldest is not None:
        context.minimum_version = _version(tls.oldest)
    if tls.newest is not None:
        context.maximum_version = _version(tls.newest)
    _trust(context, tls)
    if tls.presents_certificate:
        _present(context, tls)
    return context


def _version(name: str) -> ssl.TLSVersion:
    return ssl.TLSVersion[name.replace(".", "_")]


def _trust(context: ssl.SSLContext, tls: Tls) -> None:
    """Load the authorities."""
    if tls.trust is None and tls.trust_pem is None:
        context.load_default_certs()
        return
    try:
        if tls.trust_pem is not None:
            context.load_verify_locations(cadata=tls.trust_pem or NO_CERTIFICATE)
        elif tls.trust is not None and os.path.isdir(tls.trust):
            context.load_verify_locations(capath=tls.trust)
        elif tls.trust is not None:
            pem = pem_of(tls.trust, tls.trust_password, tls.trust_name)
            context.load_verify_locations(cadata=pem or NO_CERTIFICATE)
    except (ssl.SSLError, OSError) as error:
        raise ValueError(f"{tls.trust_name}: no certificates could be read: {short(error)}") from None


def _present(context: ssl.SSLContext, tls: Tls) -> None:
    """Load this client's certificate and key."""
    certificate = tls.certificate_pem
    if tls.certificate is not None:
        certificate = pem_of(tls.certificate, tls.store_password, tls.certificate_name)
    assert certificate is not None
    key = tls.key_pem if tls.key is None else pem_of(tls.key, None, "ssl.key.location")
    password = tls.key_password if tls.key_password is not None else tls.store_password
    try:
        with as_file(certificate) as certificate_file, as_file(key) as key_file:
            # Without a password OpenSSL would ask at the terminal, so pass an empty one.
            context.load_cert_chain(certificate_file or "", key_file, lambda: password or "")
    except (ssl.SSLError, OSError) as error:
        raise ValueError(
            f"{tls.certificate_name}: this client's certificate and key cannot be used; does the key belong to the "
            f"certificate, and is ssl.key.password its password? ({short(error)})"
        ) from None
