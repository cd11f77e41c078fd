"""The SCRAM credentials of users: a part of the metadata log's state (topics/catalog.py)."""

from __future__ import annotations

from kohort.security.scram import NAMES, Credential, phantom


class Credentials:
    def __init__(self) -> None:
        self.by_user: dict[str, dict[int, Credential]] = {}
        """User: mechanism's code: credential."""
        self.secret = b""
        """From which challenges for unknown users are made."""

    def put(self, user: str, mechanism: int, credential: Credential) -> None:
        self.by_user.setdefault(user, {})[mechanism] = credential

    def remove(self, user: str, mechanism: int) -> None:
        """Nothing, if the user does not have it: a replay meets deletions alone."""
        of_user = self.by_user.get(user, {})
        of_user.pop(mechanism, None)
        if not of_user:
            self.by_user.pop(user, None)

    def find(self, user: str, mechanism: int) -> Credential | None:
        return self.by_user.get(user, {}).get(mechanism)

    def known(self, user: str, mechanism: int) -> tuple[Credential, bool]:
        """The user's credential, or one that no password fits; and whether the user has it."""
        found = self.find(user, mechanism)
        made = phantom(self.secret, NAMES[mechanism], user)  # also for users that exist: it takes its time
        return (made, False) if found is None else (found, True)
