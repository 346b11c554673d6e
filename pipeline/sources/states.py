"""What an owner keeps in memory of each document: the same as ``DocumentState``, in a few hundred bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal
from weakref import WeakValueDictionary

from pydantic import TypeAdapter

from pipeline.sources.rules import rule_hash
from schemas.access import AccessRule
from schemas.events import DocumentState, Quarantine
from schemas.keys import DocumentRef

HoldName = Literal["quarantine", "legal", "administrator"]
QUARANTINE: Literal["quarantine"] = "quarantine"


def hold_name(name: str) -> HoldName:
    """A stored name of a hold as what it is."""
    return TypeAdapter[HoldName](HoldName).validate_python(name)


@dataclass(slots=True)
class Known:
    """State of one document. Rules are shared between documents (see ``RulePool``)."""

    content_version: int = 0
    access_version: int = 0
    not_before: int = 0
    deleted: bool = False
    content_hash: bytes | None = None
    attributes_hash: bytes | None = None
    rule: AccessRule | None = None
    holds: tuple[str, ...] = ()
    quarantine: Quarantine | None = None
    body_path: str | None = None
    path: str | None = None
    revision: str | None = None

    @property
    def doubted(self) -> bool:
        """Whether it is hidden in doubt, or shown in spite of one: whenever it is met, it is read."""
        return QUARANTINE in self.holds or self.quarantine is not None

    def to_state(self, document: DocumentRef) -> DocumentState:
        """As it is written to ``cursors``."""
        return DocumentState(
            document=document,
            content_version=self.content_version,
            access_version=self.access_version,
            not_before=self.not_before,
            deleted=self.deleted,
            content_hash=self.content_hash.hex() if self.content_hash else None,
            attributes_hash=self.attributes_hash.hex() if self.attributes_hash else None,
            access_hash=rule_hash(self.rule) if self.rule else None,
            rule=self.rule,
            holds=self.holds,
            quarantine=self.quarantine,
            body_path=self.body_path,
            path=self.path,
            revision=self.revision,
        )

    def copy(self) -> Known:
        """A copy to change."""
        return replace(self)


class RulePool:
    """Keeps one object per distinct rule while it is in use: a folder's thousand documents share it."""

    def __init__(self) -> None:
        self._rules: WeakValueDictionary[str, AccessRule] = WeakValueDictionary()

    def shared(self, rule: AccessRule) -> AccessRule:
        """An equal rule, the same object for equal rules."""
        return self._rules.setdefault(rule_hash(rule), rule)

    def from_state(self, state: DocumentState) -> Known:
        """A read state in its small form."""
        path = state.document.id if state.path == state.document.id else state.path  # one string, not two
        return Known(
            content_version=state.content_version,
            access_version=state.access_version,
            not_before=state.not_before,
            deleted=state.deleted,
            content_hash=bytes.fromhex(state.content_hash) if state.content_hash else None,
            attributes_hash=bytes.fromhex(state.attributes_hash) if state.attributes_hash else None,
            rule=self.shared(state.rule) if state.rule else None,
            holds=state.holds,
            quarantine=state.quarantine,
            body_path=state.body_path,
            path=path,
            revision=state.revision,
        )
