"""The decision by ACLs, in the order of Kafka's StandardAuthorizer.

1. A super user is allowed everything.
2. The ACLs on the resource's name, on its prefixes and on `*`: the first DENY that matches decides.
3. Otherwise any ALLOW that matches.
4. Otherwise, if no ACL of any principal is about the resource, the setting allow.everyone.if.no.acl.found.
5. Otherwise it is denied.

A decision is kept until the ACLs change. `rule` finds it again with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from kohort.broker.authorization import Operation, Principal, Resource
from kohort.broker.security.acls import ALL, EVERYBODY, PREFIXED, WILDCARD, Acl, Acls, Entries, Entry, host_of
from kohort.config import Config, super_users_of

MOST_KEPT = 4_096
"""Decisions that are kept of one principal at one address."""
MOST_RIGHTS = 1_024
"""Principals at addresses of which decisions are kept."""
SOME_NAME = "hardcode"
"""The name with which Kafka finds out whether a principal may do something with resources of any name."""


def authorizer_of(config: Config, acls: Acls) -> AclAuthorizer | None:
    """None if the settings name no authorizer."""
    if not config.authorizer_class_name:
        return None
    return AclAuthorizer(acls, super_users_of(config), allow_everyone=config.allow_everyone_if_no_acl_found)


class Rule(msgspec.Struct, frozen=True):
    """What decided."""

    allowed: bool
    reason: str
    acl: Acl | None = None


SUPER_USER = Rule(True, "super user")
NO_ACL_ALLOWED = Rule(True, "no ACL is about the resource, and allow.everyone.if.no.acl.found is true")
NO_ACL = Rule(False, "no ACL is about the resource")
NO_MATCH = Rule(False, "no ACL about the resource allows it")


class Rights:
    """What one principal at one address may do. Decisions are kept until the ACLs change."""

    __slots__ = (
        "_acls",
        "_at",
        "_authorizer",
        "_from_here",
        "_kept",
        "_of_types",
        "_room",
        "_who",
        "host",
        "principal",
    )

    def __init__(self, authorizer: AclAuthorizer, acls: Acls, principal: Principal, host: str) -> None:
        self.principal = principal
        self.host = host_of(host)
        self._who = str(principal)
        self._authorizer = authorizer
        self._acls = acls
        self._kept: dict[int, dict[str, bool]] = {}
        """By operation and type of resource, and by name."""
        self._of_types: dict[tuple[bool, int], bool] = {}
        """Decisions about any resource of a type, and about all of them."""
        self._from_here: dict[int, tuple[Entry, ...]] = {}
        """By the identity of a pattern's entries: those about the principal and the address. A pattern may have
        thousands of entries about other addresses."""
        self._forget()

    def allows(self, operation: Operation, resource: Resource, name: str) -> bool:
        if self._at != self._acls.version:
            self._forget()
        key = operation << 3 | resource
        kept = self._kept.get(key)
        if kept is not None:
            found = kept.get(name)
            if found is not None:
                return found
        return self._decide(key, operation, resource, name)

    def allows_any(self, operation: Operation, resource: Resource) -> bool:
        """Whether the operation is allowed on a resource of any name (Kafka's Authorizer.authorizeByResourceType)."""
        return self._of_type(True, operation, resource)

    def allows_all(self, operation: Operation, resource: Resource) -> bool:
        """Whether the operation is allowed on every resource of this type, whatever its name."""
        return self._of_type(False, operation, resource)

    def rule(self, operation: Operation, resource: Resource, name: str) -> Rule:
        """The decision with its reason."""
        if self._at != self._acls.version:
            self._forget()
        if self._authorizer.is_super(self.principal):
            return SUPER_USER
        bit = 1 << operation
        found = False
        allowing: Acl | None = None
        for entries in self._acls.patterns_for(resource, name):
            found = True
            for entry in self._about_me(entries):
                if not entry.operations & bit:
                    continue
                if entry.denies:
                    return Rule(False, "ACL", entry.acl)
                if allowing is None:
                    allowing = entry.acl
        if allowing is not None:
            return Rule(True, "ACL", allowing)
        return NO_MATCH if found else self._authorizer.without_acl

    def _about_me(self, entries: Entries) -> tuple[Entry, ...]:
        about = self._from_here.get(id(entries))
        if about is None:
            about = tuple(
                entry
                for who in (self._who, EVERYBODY)
                for entry in entries.get(who, {}).values()
                if entry.is_from(self.host)
            )
            self._from_here[id(entries)] = about
        return about

    def _decide(self, key: int, operation: Operation, resource: Resource, name: str) -> bool:
        if not self._room:
            self._forget()
        self._room -= 1
        allowed = self.rule(operation, resource, name).allowed
        self._kept.setdefault(key, {})[name] = allowed
        return allowed

    def _of_type(self, any_: bool, operation: Operation, resource: Resource) -> bool:
        if self._at != self._acls.version:
            self._forget()
        key = (any_, operation << 3 | resource)
        if key not in self._of_types:
            decide = self._decide_any if any_ else self._decide_all
            self._of_types[key] = self._authorizer.is_super(self.principal) or decide(operation, resource)
        return self._of_types[key]

    def _decide_all(self, operation: Operation, resource: Resource) -> bool:
        about = [entry for entry in self._about_type(resource) if entry.operations >> operation & 1]
        return not any(entry.denies for entry in about) and any(
            entry.acl.name == WILDCARD and entry.acl.pattern != PREFIXED for entry in about
        )

    def _decide_any(self, operation: Operation, resource: Resource) -> bool:
        if self.rule(operation, resource, SOME_NAME).allowed:
            return True
        denied: dict[bool, set[str]] = {True: set(), False: set()}
        allowed: dict[bool, dict[str, None]] = {True: {}, False: {}}
        # Without what other operations imply, as in Kafka.
        operations = (operation, ALL)
        for entry in self._about_type(resource):
            acl = entry.acl
            if acl.operation not in operations:
                continue
            if not entry.denies:
                allowed[acl.pattern == PREFIXED][acl.name] = None
            elif acl.pattern != PREFIXED and acl.name == WILDCARD:
                return False
            else:
                denied[acl.pattern == PREFIXED].add(acl.name)
        if WILDCARD in allowed[False]:
            return True
        return any(
            not (not prefixed and name in denied[False])
            and not any(name[:length] in denied[True] for length in range(1, len(name) + 1))
            for prefixed, names in allowed.items()
            for name in names
        )

    def _about_type(self, resource: Resource) -> Iterator[Entry]:
        return (entry for entry in self._acls.entries_about(resource, self._who) if entry.is_from(self.host))

    def _forget(self) -> None:
        self._at = self._acls.version
        self._room = MOST_KEPT
        self._kept.clear()
        self._of_types.clear()
        self._from_here.clear()


class AclAuthorizer:
    def __init__(self, acls: Acls, super_users: Iterable[str] = (), *, allow_everyone: bool = False) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self.without_acl = NO_ACL_ALLOWED if allow_everyone else NO_ACL
        """The decision about a resource that no ACL is about."""
        self._rights: dict[tuple[Principal, str], Rights] = {}

    @property
    def version(self) -> int:
        return self._acls.version

    def is_super(self, principal: Principal) -> bool:
        return str(principal) in self._super_users

    def rights(self, principal: Principal, host: str) -> Rights:
        """`host` is an address, also as Kafka prints it, with a slash before."""
        key = (principal, host)
        found = self._rights.get(key)
        if found is None:
            if len(self._rights) >= MOST_RIGHTS:
                self._rights.clear()
            found = self._rights[key] = Rights(self, self._acls, principal, host.removeprefix("/"))
        return found

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        return self.rights(principal, host).allows(operation, resource, name)

    def allows_any(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return self.rights(principal, host).allows_any(operation, resource)

    def allows_all(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return self.rights(principal, host).allows_all(operation, resource)

    def rule(self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str) -> Rule:
        return self.rights(principal, host).rule(operation, resource, name)
