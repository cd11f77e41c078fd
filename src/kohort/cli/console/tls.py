"""The certificate of the console's own listener: a PEM file as the server takes it, or PKCS12 without a password.

The file is read again when it has changed; new connections then get the new certificate. If that cannot be used, the
former one stays.
"""

from __future__ import annotations

import os
import ssl

import typer

from kohort.cli.option_objects import complain
from kohort.security.keystores import pem_of
from kohort.security.pem_files import as_file, short
from kohort.server.security.contexts import check_private

FLAG = "--certificate"


class Certificate:
    """Raises BadParameter if the file cannot be used."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._stamp = self._now()
        self.context = _context()
        try:
            _load(self.context, file)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=[FLAG]) from None

    def renew(self) -> None:
        """Take a changed file; a line on stderr says what is wrong with it."""
        now = self._now()
        if now == self._stamp:
            return
        self._stamp = now
        try:
            _load(_context(), self._file)  # a file that cannot be used must not touch the context in use
            _load(self.context, self._file)
        except ValueError as error:
            complain(f"{FLAG}: {error}; the former certificate stays in use")

    def _now(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, file: str) -> None:
    """Raises ValueError, without the flag."""
    try:
        check_private(file, FLAG)
        pem = pem_of(file, None, FLAG)
    except ValueError as error:
        raise ValueError(str(error).removeprefix(f"{FLAG}: ")) from None
    try:
        with as_file(pem) as path:
            # Without a password OpenSSL would ask at the terminal, so pass an empty one.
            context.load_cert_chain(path or "", None, lambda: "")
    except OSError as error:
        raise ValueError(
            f"{file}: the certificate and its key cannot be used; the file has both, the certificate first, and the "
            f"key has no password ({short(error)})"
        ) from None
