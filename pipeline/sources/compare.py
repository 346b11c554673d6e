"""An observation against what is known: what differs, and what follows from it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from pipeline.ports import SourceDocument
from pipeline.sources.rules import is_within, rule_hash
from pipeline.sources.states import Known
from schemas.access import AccessRule
from schemas.events import ContentUpserted, InlineBody, Priority, SourceFacts


@dataclass(frozen=True)
class Verdict:
    """What an observation changes."""

    rule: AccessRule
    altered: bool = False  # content or an attribute differs, or it is asked for
    regranted: bool = False  # the rule decides otherwise than before
    widened: bool = False  # someone may read who might not before
    narrowed: bool = False  # someone may no longer read
    redacts: bool = False  # earlier content must never be admitted again
    held: bool = False  # the document was in quarantine and is here again
    content_hash: bytes = b""
    attributes_hash: bytes = b""
    fresh: bool = False  # not known before, or deleted
    same_text: bool = False  # what is known of its content and attributes holds

    @property
    def differs(self) -> bool:
        """Whether the source says anything else than the log."""
        return not self.same_text or self.regranted

    @property
    def republish(self) -> bool:
        """Content goes out again: also for a wider rule, since its new readers get only what is read now."""
        return self.altered or self.widened

    @property
    def new_rule(self) -> bool:
        """An access event is due."""
        return self.regranted or self.redacts

    @property
    def urgent(self) -> bool:
        """Something is taken away."""
        return self.narrowed or self.redacts

    @property
    def nothing(self) -> bool:
        """The log says all of it already."""
        return not (self.altered or self.regranted or self.held)


def compare_rule(given: object, known: Known) -> Verdict:
    """A rule against the known one. None keeps that; where there is none either, nobody may read."""
    old = known.rule if not known.deleted else None
    if isinstance(given, AccessRule):
        rule = given
    else:
        rule = old or AccessRule.nobody("no access rule was given with the document")
    if old is not None and rule_hash(rule) == rule_hash(old):
        return Verdict(rule)
    return Verdict(
        rule,
        regranted=True,
        widened=old is None or not is_within(rule, old),
        narrowed=old is not None and not is_within(old, rule),
    )


def compare(seen: SourceDocument, known: Known | None, *, force: bool = False) -> Verdict:
    """A whole observed document against what is known of it."""
    old = known or Known()
    fresh = known is None or known.deleted
    by_rule = compare_rule(seen.rule, old)
    content, attributes = hashlib.sha256(seen.body).digest(), attributes_hash(seen)
    held = old.doubted
    other = old.content_hash != content
    redacts = seen.redacted and (other or old.not_before < old.content_version)
    # Of what was hidden in doubt nobody knows why its text is another one: the older is not shown for a moment again.
    redacts = not fresh and (redacts or (held and other))
    same = not fresh and (old.content_hash, old.attributes_hash) == (content, attributes)
    return Verdict(
        by_rule.rule,
        altered=force or redacts or not same,
        regranted=by_rule.regranted,
        widened=by_rule.widened,
        narrowed=by_rule.narrowed,
        redacts=redacts,
        held=held,
        content_hash=content,
        attributes_hash=attributes,
        fresh=fresh,
        same_text=same,
    )


def attributes_hash(seen: SourceDocument) -> bytes:
    """16 bytes over everything beside body and rule that an event shows of the document."""
    shown = [
        seen.title,
        seen.url,
        seen.path,
        seen.content_type,
        seen.language,
        seen.product,
        seen.effective_from,
        seen.effective_until,
    ]
    return hashlib.sha256(json.dumps(shown).encode("ascii")).digest()[:16]


def content_event(seen: SourceDocument, state: Known, priority: Priority, now: int) -> ContentUpserted:
    """The event, its body still to be placed. Raises ValidationError where an attribute cannot be written."""
    return ContentUpserted(
        document=seen.document,
        version=state.content_version,
        access_version=state.access_version,
        title=seen.title,
        url=seen.url,
        path=seen.path,
        content_type=seen.content_type,
        language=seen.language,
        product=seen.product,
        effective_from=seen.effective_from,
        effective_until=seen.effective_until,
        body=InlineBody(text=""),
        source_facts=SourceFacts(
            revision=seen.revision,
            updated_at=seen.updated_at,
            content_hash=hashlib.sha256(seen.body).hexdigest(),
        ),
        observed_at=now,
        priority=priority,
    )
