"""A listener's TLS context: built from its settings, and built again when it is renewed (certificates.py).

Each new connection uses the context in force, so connections that are open keep theirs. A renewed certificate is tried
by a handshake in memory before it is used. As in Kafka, it must have the subject and the alternative names of the
former one, unless ssl.allow.dn.changes or ssl.allow.san.changes allow other ones.

Errors name the setting and the file, and never their contents. A file with a key must not be readable by all users.
"""

from __future__ import annotations

import datetime
import os
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kohort.config import Config, ConfigError, Listener, value_at
from kohort.security.keystores import PEM_MARK, pem_of
from kohort.security.pem_files import as_file, short
from kohort.server.security.principals import Rules

CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
NO_CERTIFICATE = "none"
"""Passed to OpenSSL for an empty text, which Python would refuse."""
MOST_BITS = 8192
"""Of an RSA key. The time of a handshake grows with the third power: 16,384 bits take a second."""


class Identity(NamedTuple):
    """What a renewed certificate must keep."""

    subject: str
    names: frozenset[str]


class ListenerTls:
    """The TLS of one listener. Raises ConfigError."""

    def __init__(self, config: Config, listener: Listener) -> None:
        self.listener = listener.name
        self.rules = Rules(self._value(config, "ssl.principal.mapping.rules"))
        self.handshake_s: float = self._value(config, "ssl.handshake.timeout.ms") / 1000
        self.asks_certificate = self._value(config, "ssl.client.auth") != "none"
        self._config = config
        self._settings = listener
        self._stamps = self._now_stamped()
        chain = _certificates_of(self._chain())
        if (bits := getattr(chain[0].public_key(), "key_size", 0)) > MOST_BITS:
            raise ConfigError(
                f"the key of the listener {self.listener} has {bits} bits; at most {MOST_BITS} are allowed"
            )
        self.context = self._made(verify=True)
        self.identity = _identity(chain[0])
        first = min(chain, key=lambda certificate: certificate.not_valid_after_utc)
        self.ends: datetime.datetime = first.not_valid_after_utc
        """When the first certificate of the chain expires."""
        self.ending: str = first.subject.rfc4514_string()
        """The subject of this certificate."""

    def _value(self, config: Config, setting: str) -> Any:
        return value_at(config, self.listener, setting)

    @property
    def has_changed(self) -> bool:
        """True if a file of keys or authorities is another one than when it was read."""
        return self._now_stamped() != self._stamps

    def renew(self) -> None:
        """Read the files again. Raises ConfigError; then the former context stays."""
        self._stamps = self._now_stamped()  # files that cannot be used are read again when they have changed again
        new = ListenerTls(self._config, self._settings)
        new.check_replaces(self)
        self.context, self.identity = new.context, new.identity
        self.ends, self.ending = new.ends, new.ending

    def check_replaces(self, former: ListenerTls) -> None:
        """Raises ConfigError if this must not take the place of a former one."""
        _try(self._made(verify=False))
        new = self.identity
        if new.subject != former.identity.subject and not self._value(self._config, "ssl.allow.dn.changes"):
            raise ConfigError(
                f"the new certificate is for {new.subject}, the former one for {former.identity.subject}; "
                "ssl.allow.dn.changes=true allows that"
            )
        lost = former.identity.names - new.names
        if lost and not self._value(self._config, "ssl.allow.san.changes"):
            raise ConfigError(
                f"the new certificate lacks the names {', '.join(sorted(lost))}; ssl.allow.san.changes=true allows that"
            )

    # -- building

    def _made(self, *, verify: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        versions = self._versions()
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        self._load_key(context)
        if verify and self.asks_certificate:
            self._load_authorities(context)
            context.verify_mode = CLIENT_AUTH[self._value(self._config, "ssl.client.auth")]
        return context

    def _versions(self) -> list[ssl.TLSVersion]:
        text = self._value(self._config, "ssl.enabled.protocols")
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names or not set(names) <= VERSIONS.keys():
            raise ConfigError(f"ssl.enabled.protocols is {text!r}; it takes TLSv1.2, TLSv1.3 or both, comma separated")
        return [VERSIONS[name] for name in names]

    def _load_key(self, context: ssl.SSLContext) -> None:
        location = self._value(self._config, "ssl.keystore.location")
        key = self._value(self._config, "ssl.keystore.key")
        store_password = self._value(self._config, "ssl.keystore.password")
        password = self._value(self._config, "ssl.key.password") or store_password
        setting = "ssl.keystore.location" if location else "ssl.keystore.certificate.chain"
        chain = self._chain()
        try:
            with as_file(chain) as chain_file, as_file(key) as key_file:
                # Without a password OpenSSL would ask at the terminal, so pass an empty one.
                context.load_cert_chain(chain_file or "", None if location else key_file, lambda: password)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"{setting} of the listener {self.listener}: the certificate and its key cannot be used; does the file "
                f"have both, and is ssl.key.password the key's password? ({short(error)})"
            ) from None

    def _chain(self) -> str:
        """The certificate and its chain as PEM, with the key if it is in the same file."""
        location = self._value(self._config, "ssl.keystore.location")
        if location:
            check_private(location, "ssl.keystore.location")
            return self._pem(location, self._value(self._config, "ssl.keystore.password"), "ssl.keystore.location")
        chain: str = self._value(self._config, "ssl.keystore.certificate.chain")
        if not chain:
            raise ConfigError(
                f"the listener {self.listener} needs a certificate and its key: set ssl.keystore.location to a PEM or "
                "PKCS12 file; `kohort certificates create` makes one for development"
            )
        return chain

    def _load_authorities(self, context: ssl.SSLContext) -> None:
        location = self._value(self._config, "ssl.truststore.location")
        pem = self._value(self._config, "ssl.truststore.certificates")
        if location:
            password = self._value(self._config, "ssl.truststore.password")
            pem = self._pem(location, password, "ssl.truststore.location")
        elif not pem:
            raise ConfigError(
                f"the listener {self.listener} verifies clients' certificates (ssl.client.auth): set "
                "ssl.truststore.location to a file of the authorities that sign them"
            )
        try:
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=_certificates(pem))
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"ssl.truststore.location: no certificates could be read ({short(error)})") from None

    def _pem(self, location: str, password: str, setting: str) -> str:
        try:
            return pem_of(os.path.expanduser(location), password or None, setting)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def _now_stamped(self) -> tuple[object, ...]:
        names = ("ssl.keystore.location", "ssl.truststore.location")
        return tuple(_stamp(self._value(self._config, name)) for name in names)


def check_private(location: str, setting: str) -> None:
    """Raises ConfigError if every user of the machine can read a file with a secret."""
    try:
        mode = os.stat(os.path.expanduser(location)).st_mode
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {location}: {error.strerror}") from None
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        raise ConfigError(
            f"{setting}: {location} holds a secret and all users of this machine can read it; run chmod 600 {location}"
        )


def _stamp(location: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(os.path.expanduser(location)) if location else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def _certificates(pem: str) -> str:
    return pem if PEM_MARK.decode() in pem else NO_CERTIFICATE


def _certificates_of(pem: str) -> list[Any]:
    """The certificate, and those of its chain."""
    try:
        from cryptography import x509
    except ImportError:
        raise ConfigError("TLS takes the package cryptography: pip install 'kohort[tls]'") from None
    try:
        return list(x509.load_pem_x509_certificates(pem.encode()))
    except ValueError as error:
        raise ConfigError(f"ssl.keystore.location: the certificate cannot be read ({error})") from None


def _identity(leaf: Any) -> Identity:
    from cryptography import x509

    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        names: frozenset[str] = frozenset()
    else:
        names = frozenset(str(name.value) for name in extension.value)
    return Identity(leaf.subject.rfc4514_string(), names)


def _try(server: ssl.SSLContext) -> None:
    """A handshake in memory, with a client that trusts everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = context.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for end in ends * 3:
            with _wanting_more():
                end.do_handshake()
        if ends[1].version() is None:
            raise ConfigError("a handshake with the new certificate does not end")
    except ssl.SSLError as error:
        raise ConfigError(f"a handshake with the new certificate fails: {short(error)}") from None


@contextmanager
def _wanting_more() -> Iterator[None]:
    try:
        yield
    except ssl.SSLWantReadError:
        return
