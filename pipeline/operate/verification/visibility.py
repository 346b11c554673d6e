"""Access parity by evaluation: sampled principals over all documents of a tenant, in both generations."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipeline.admission import refusal
from pipeline.closures import closure_among, closure_by
from pipeline.operate.verification.coverage import Side
from pipeline.operate.verification.heads import BATCH, Head, read_heads
from pipeline.operate.verification.means import Means
from schemas.access import Closure
from schemas.documents import AccessRecord, PrincipalRecord
from schemas.verification import AccessDifference, PrincipalSample

EXTREMES = 3
RANDOM = 12
ROUNDS = 5
ROUND_S = 1.0

Chosen = Literal["few_groups", "many_groups", "random", "unknown", "removed"]


@dataclass
class People:
    """Principals and access records of a tenant as they were read, and when (µs)."""

    records: dict[str, AccessRecord]
    principals: Mapping[str, PrincipalRecord | None]
    now: int

    @staticmethod
    def read(means: Means, tenant: str) -> People:
        """All of a tenant. Raises StoreUnavailable."""
        principals: dict[str, PrincipalRecord | None] = {p.principal: p for p in means.store.walk_principals(tenant)}
        records = {record.document.uid: record for record in means.store.walk_access(tenant)}
        return People(records, principals, means.clock.now())

    @staticmethod
    def fresh(means: Means, tenant: str, people: Iterable[str], uids: Iterable[str]) -> People:
        """Some people with all that they belong to, and some documents, as they are now. Raises StoreUnavailable."""
        principals: dict[str, PrincipalRecord | None] = {}
        now = means.clock.now()

        def read(names: Sequence[str]) -> Mapping[str, PrincipalRecord | None]:
            unknown = [name for name in names if name not in principals]
            found = means.store.read_principals(tenant, unknown) if unknown else {}
            principals.update({name: found.get(name) for name in unknown})
            return principals

        for name in people:
            closure_by(name, read, now)
        wanted, records = sorted(set(uids)), dict[str, AccessRecord]()
        for start in range(0, len(wanted), BATCH):
            records |= means.store.read_access(tenant, wanted[start : start + BATCH])
        return People(records, principals, means.clock.now())

    def decide(self, head: Head | None, closure: Closure, tenant: str) -> bool:
        """Whether the caller may read the document as this generation has it."""
        if head is None or not head.live:
            return False
        return refusal(head.manifest, self.records.get(head.uid), closure, tenant, self.now) is None


@dataclass
class Seen:
    """Sampled people of a tenant: what each sees, and where the generations differ."""

    samples: list[PrincipalSample] = field(default_factory=list)
    closures: dict[str, Closure] = field(default_factory=dict)
    visible: dict[str, frozenset[str]] = field(default_factory=dict)  # in both, by principal
    differences: list[AccessDifference] = field(default_factory=list)
    documents: int = 0

    def closure_of(self, user: str, people: People) -> Closure:
        """Of a person, sampled or not, as the people were read at first."""
        name = f"user:{user}"
        if name not in self.closures:
            self.closures[name] = closure_among(name, people.principals, people.now)
        return self.closures[name]


def choose(people: People, seed: int, tenant: str) -> dict[str, Chosen]:
    """A seeded sample of users: those with the fewest and the most groups, others, a removed and an unknown one."""
    rng, principals = random.Random(f"{seed} {tenant}"), people.principals
    records = [r for name, r in sorted(principals.items()) if name.startswith("user:") and r is not None]
    live = [r.principal for r in records if not r.removed]
    removed = [r.principal for r in records if r.removed]
    size = {name: len(closure_among(name, principals, people.now).principals) for name in _some(live, rng)}
    by_size = sorted(size, key=lambda name: (size[name], name))
    found: dict[str, Chosen] = dict.fromkeys(by_size[:EXTREMES], "few_groups")
    found |= {name: "many_groups" for name in by_size[-EXTREMES:] if name not in found}
    rest = [name for name in live if name not in found]
    found |= dict.fromkeys(rng.sample(rest, min(RANDOM, len(rest))), "random")
    if removed:
        found[rng.choice(removed)] = "removed"
    found[f"user:unknown-{rng.getrandbits(48):012x}"] = "unknown"
    return found


def _some(live: list[str], rng: random.Random, most: int = 2000) -> list[str]:
    return live if len(live) <= most else rng.sample(live, most)


def compare(means: Means, people: People, here: Side, there: Side | None, skipped: Iterable[str], seed: int) -> Seen:
    """What the sampled people see here and there; ``skipped`` documents are coverage's affair.

    Differences are read again, since documents go on changing: they count when they stay, and where both generations
    have the same version. (Whether one lacks what was logged before is coverage's affair too.) Raises StoreUnavailable.
    """
    chosen = choose(people, seed, here.tenant)
    sides = [here] if there is None else [here, there]
    uids = sorted({uid for side in sides for uid, head in side.heads.items() if head.live} - set(skipped))
    found = Seen(documents=len(uids))
    differing: dict[str, set[str]] = {}
    for principal, why in chosen.items():
        closure = closure_among(principal, people.principals, people.now)
        found.closures[principal] = closure
        mine = {uid for uid in uids if people.decide(here.heads.get(uid), closure, here.tenant)}
        theirs = mine
        if there is not None:
            theirs = {uid for uid in uids if people.decide(there.heads.get(uid), closure, here.tenant)}
        found.visible[principal] = frozenset(mine & theirs)
        found.samples.append(
            PrincipalSample(
                tenant=here.tenant, principal=principal, chosen=why, principals=len(closure.principals),
                here=len(mine), there=len(theirs),
            )
        )  # fmt: skip
        if mine != theirs:
            differing[principal] = mine ^ theirs
    if there is not None and differing:
        found.differences = _settled(means, here, there, differing)
    return found


def _settled(means: Means, here: Side, there: Side, differing: dict[str, set[str]]) -> list[AccessDifference]:
    left = differing
    for number in range(ROUNDS):
        if number:
            means.sleep(ROUND_S)
        uids = {uid for one in left.values() for uid in one}
        people = People.fresh(means, here.tenant, left, uids)
        mine = read_heads(means.store, here.generation, here.tenant, uids)
        theirs = read_heads(means.store, there.generation, here.tenant, uids)
        found: list[AccessDifference] = []
        again: dict[str, set[str]] = {}
        for principal, documents in left.items():
            closure = closure_among(principal, people.principals, people.now)
            for uid in sorted(documents):
                sees = people.decide(mine.get(uid), closure, here.tenant)
                saw = people.decide(theirs.get(uid), closure, here.tenant)
                if sees != saw:
                    again.setdefault(principal, set()).add(uid)
                if sees != saw and level(mine.get(uid), theirs.get(uid)):
                    found.append(_difference(here, people, principal, closure, (mine.get(uid), theirs.get(uid)), sees))
        left = again
        if not left:
            return []
    return found


def level(one: Head | None, other: Head | None) -> bool:
    """Whether two generations have a document at the same version, or one does not have it at all."""
    if one is None or other is None:
        return True
    first, second = one.manifest, other.manifest
    return (first.content_version, first.seen_access_version) == (second.content_version, second.seen_access_version)


def _difference(
    side: Side, people: People, principal: str, closure: Closure, heads: tuple[Head | None, Head | None], sees: bool
) -> AccessDifference:
    refused, seen = (heads[1], heads[0]) if sees else (heads[0], heads[1])
    assert seen is not None  # it admitted somebody
    uid = seen.uid
    reason = refusal(
        refused.manifest if refused is not None else None, people.records.get(uid), closure, side.tenant, people.now
    )
    return AccessDifference(
        kind="only_here" if sees else "only_there", tenant=side.tenant, principal=principal, document_uid=uid,
        document=seen.manifest.document, detail=f"refused in the other ({(reason or 'no content').replace('_', ' ')})",
    )  # fmt: skip
