"""Admission (invariant 3) without a request's filters: may these principals read this version of the document now?

Pure, and the one home of the decision: ``query_service.admit`` applies it to candidates, verification to whole
generations.
"""

from __future__ import annotations

from enum import StrEnum

from schemas.access import Closure
from schemas.documents import AccessRecord, Manifest


class Refusal(StrEnum):
    """Why a candidate was not admitted. Counted in metrics, never told to the caller."""

    NO_MANIFEST = "no_manifest"
    DELETED = "deleted"
    NOT_LISTED = "not_listed"
    NO_RECORD = "no_record"
    OTHER_TENANT = "other_tenant"
    TOMBSTONE = "tombstone"
    HOLD = "hold"
    NOT_BEFORE = "not_before"
    ACCESS_BEHIND = "access_behind"
    RULE = "rule"
    MANIFEST_RULE = "manifest_rule"
    FILTER = "filter"


def refusal(
    manifest: Manifest | None, record: AccessRecord | None, closure: Closure, tenant: str, now: int
) -> Refusal | None:
    """None when the closure may read the manifest's version of the document at ``now`` (µs), else why not."""
    if manifest is None:
        return Refusal.NO_MANIFEST
    if record is None:
        return Refusal.NO_RECORD
    if manifest.document.tenant != tenant or record.document != manifest.document:
        return Refusal.OTHER_TENANT
    if manifest.deleted:
        return Refusal.DELETED
    return _refused_by_record(manifest, record, closure, now)


def _refused_by_record(manifest: Manifest, record: AccessRecord, closure: Closure, now: int) -> Refusal | None:
    if record.tombstone:
        return Refusal.TOMBSTONE
    if record.holds:
        return Refusal.HOLD
    if manifest.content_version < record.not_before:
        return Refusal.NOT_BEFORE
    if record.version < manifest.access_version:
        return Refusal.ACCESS_BEHIND
    if not record.rule.admits(closure, now):
        return Refusal.RULE
    # The record's rule was read with newer content than is served: its readers may not have been meant for this one.
    if manifest.content_version < record.content_version and not manifest.rule.admits(closure, now):
        return Refusal.MANIFEST_RULE
    return None
