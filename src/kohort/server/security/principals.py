"""The principal of a client by its certificate: `ssl.principal.mapping.rules`.

The name of a certificate is its subject as in RFC 2253, the most specific attribute first: CN=alice,OU=etl,O=Example.
Rules are tried in their order, and the first whose pattern matches the whole name makes the principal's name. Source:
SslPrincipalMapper.java. `cryptography` prints a rare attribute such as emailAddress as text, Java as OID=#hexadecimal.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kohort.config import ConfigError

SETTING = "ssl.principal.mapping.rules"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:[,\n]|$)", re.DOTALL)


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: DEFAULT, the name as it is."""
    replacement: str = ""
    case: str = ""


class Rules:
    def __init__(self, text: str) -> None:
        """Raises ConfigError."""
        self._rules: list[_Rule] = []
        position = 0
        while position < len(text.strip()):
            found = _RULE.match(text, position)
            if found is None or found.end() == position:
                raise ConfigError(f"{SETTING} is {text!r}; it takes RULE:PATTERN/REPLACEMENT/[L|U] and DEFAULT")
            position = found.end()
            self._rules.append(_Rule(None) if found[1] else _rule(found[2], found[3], found[4]))
        if not self._rules:
            self._rules.append(_Rule(None))

    def name(self, subject: str) -> str | None:
        """The principal's name; None if no rule matches."""
        for rule in self._rules:
            if rule.pattern is None:
                return subject
            found = rule.pattern.fullmatch(subject)
            if found is not None:
                name = found.expand(rule.replacement)
                return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        return None


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    """`$1` is Java's reference to a group."""
    try:
        compiled = re.compile(pattern)
        escaped = replacement.replace("\\/", "/").replace("\\", "\\\\")
        template = re.sub(r"\$(\d)", r"\\g<\1>", escaped)
        if any(int(group) > compiled.groups for group in re.findall(r"\$(\d)", escaped)):
            raise re.error("the replacement names a group that the pattern lacks")
    except re.error as error:
        raise ConfigError(f"{SETTING}: the rule with the pattern {pattern!r} cannot be used: {error}") from None
    return _Rule(compiled, template, case)


def subject_of(certificate: bytes) -> str:
    """The name of a certificate (DER)."""
    from cryptography import x509  # only where clients have certificates

    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
