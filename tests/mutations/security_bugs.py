"""Known bugs of the client's TLS and SASL; test_mutations.py plants them."""

from __future__ import annotations

from planting import Bug

SCRAM, TLS, EXCHANGE = "client/security/scram.py", "client/security/tls.py", "client/wire/exchange.py"
BLOCKING, ASYNCIO, ROUTING = (
    "client/wire/blocking_connection.py",
    "client/wire/async_connection.py",
    "client/wire/routing.py",
)
SCRAM_TEST = "tests/client_library/test_scram.py::"
WIRE_TEST = "tests/client_library/test_secured_connections.py::"
PROPERTIES_TEST = "tests/client_library/test_security_properties.py::"

SECURITY_BUGS = (
    Bug(
        "whoever answers need not know the password",
        ((SCRAM, "    if not hmac.compare_digest(", "    if False and not hmac.compare_digest("),),
        (WIRE_TEST + "test_a_false_broker",),
    ),
    Bug(
        "another exchange's nonce is taken",
        ((SCRAM, "    if not server_nonce.startswith(nonce) or server_nonce == nonce:\n", "    if False:\n"),),
        (SCRAM_TEST + "test_bad_challenges",),
    ),
    Bug(
        "a hash that is cheap to search is given away",
        ((SCRAM, "    if not MIN_ITERATIONS <= int(count) <= MAX_ITERATIONS:\n", "    if False:\n"),),
        (SCRAM_TEST + "test_bad_challenges",),
    ),
    Bug(
        "a certificate of any host will do",
        ((TLS, "context.check_hostname = tls.verify and tls.verify_host", "context.check_hostname = False"),),
        (WIRE_TEST + "test_certificates_that_are_refused", PROPERTIES_TEST + "test_how_much_is_verified"),
    ),
    Bug(
        "the system's authorities are trusted besides those that are given",
        ((TLS, "    _trust(context, tls)\n", "    context.load_default_certs()\n    _trust(context, tls)\n"),),
        (PROPERTIES_TEST + "test_trust_and_key_in_every_notation",),
    ),
    Bug(
        "the password is sent although the mechanism was refused",
        (
            (
                EXCHANGE,
                "        if answer.error_code:\n            code = error_code(answer.error_code)\n            offered",
                "        if False:\n            code = error_code(answer.error_code)\n            offered",
            ),
        ),
        (WIRE_TEST + "test_a_mechanism_that_is_not_offered",),
    ),
    Bug(
        "a blocking connection does not authenticate again",
        ((BLOCKING, "        if self._renew_at is None or self._pending", "        if True or self._pending"),),
        (WIRE_TEST + "test_a_blocking_connection_authenticates_again_in_time",),
    ),
    Bug(
        "an asyncio connection does not authenticate again",
        (
            (
                ASYNCIO,
                "        if self._renew_at is not None and self._renewing is None",
                "        if False and self._renewing is None",
            ),
        ),
        (WIRE_TEST + "test_an_asyncio_connection_authenticates_again_in_time",),
    ),
    Bug(
        "what is asked while the client authenticates again goes between its messages",
        (
            (
                ASYNCIO,
                "        if self._renewing is None:\n            return self._send(",
                "        if True:\n            return self._send(",
            ),
        ),
        (WIRE_TEST + "test_an_asyncio_connection_authenticates_again_in_time",),
    ),
)
