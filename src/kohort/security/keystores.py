"""Certificates and keys out of the files that Kafka's clients use: PEM, and PKCS12 where `cryptography` is installed.

The first bytes of a file decide on its format, not the `type` property: Java, too, reads PKCS12 files that are declared
as JKS. Only Java reads JKS itself, so it is refused, with the commands that convert it. Errors are ValueErrors that
name the property and the file, never its contents.
"""

from __future__ import annotations

from pathlib import Path

PEM_MARK = b"-----BEGIN "
JAVA_MARKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""JKS and JCEKS."""
DER_MARK = b"\x30"


def pem_of(path: str, password: str | None, name: str) -> str:
    """The contents of a store as PEM: the key, if it has one, and the certificates. `name` is the property's name.

    A key out of a PKCS12 store has no password any more. Raises ValueError.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: cannot read {path}: {error.strerror}") from None
    if PEM_MARK in content:
        return content.decode("ascii", "ignore")  # only comments have other characters
    if content.startswith(JAVA_MARKS):
        raise ValueError(
            f"{name}: {path} is a Java key store, which only Java reads. Convert it: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12, then {_to_pem('store.p12')}"
        )
    if content.startswith(DER_MARK):
        return _pkcs12(content, path, password, name)
    raise ValueError(f"{name}: {path} is neither PEM nor PKCS12")


def _pkcs12(content: bytes, path: str, password: str | None, name: str) -> str:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ValueError(
            f"{name}: {path} looks like PKCS12, which takes the package cryptography (pip install cryptography). "
            f"Or convert it to PEM: {_to_pem(path)}"
        ) from None
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError:
        raise ValueError(f"{name}: {path} is no PKCS12 store that opens with the password given") from None
    parts = []
    if store.key is not None:
        parts.append(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    own = [store.cert] if store.cert is not None else []
    parts += [entry.certificate.public_bytes(Encoding.PEM) for entry in (*own, *store.additional_certs)]
    return b"".join(parts).decode()


def _to_pem(path: str) -> str:
    return f"openssl pkcs12 -in {path} -out store.pem"
