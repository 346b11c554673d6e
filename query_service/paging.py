"""What one page of a search hands to the next: the ranking that is left and what was shown, sealed.

A cursor grants nothing: every page admits at its own moment. It is encrypted all the same, since it names passages
that were admitted when the page before was ranked and may be revoked by now.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import struct
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from query_service.outcome import Ranked
from query_service.scope import FieldError, Scope
from query_service.supply import Supplied
from schemas.api import SearchRequest
from schemas.api_ranking import MAX_CURSOR

MAX_SHOWN = 1000  # hits of one search over all pages
_FORMAT = 3
_MARK = 5  # bytes that stand for what was shown: MAX_SHOWN passages, each of a document of its own, fit
_NONCE = 12
_TAG = 16
_OVERHEAD = 20  # of a compression that finds nothing to compress (zlib: 16 bytes), and the format
_ROOM = MAX_CURSOR // 4 * 3 - _NONCE - _TAG - _OVERHEAD  # before it is compressed, so that what is opened has a bound
# Whether anything was cut, last final score; lengths: generation, shown, documents shown, documents kept, kept
_HEAD = struct.Struct(">?fHHHHH")
_SCORES = 4  # first, rerank, final, fused
_KEPT = 16 + 2 + 1 + 4 * _SCORES  # bytes of a passage: chunk, index of its document, exact, scores
_REMEDY = "send the request of the page before, unchanged and as the same caller, or search again without a cursor"


@dataclass(frozen=True)
class Kept:
    """A passage that was ranked and not shown, with the scores that put it there."""

    chunk_id: str
    document_uid: str
    first: float
    rerank: float | None
    final: float | None
    fused: float
    exact: bool = False

    @staticmethod
    def of(ranked: Ranked) -> Kept:
        """From a ranking."""
        c = ranked.candidate
        return Kept(c.chunk_id, c.document_uid, ranked.first, ranked.rerank, ranked.final, ranked.fused, c.exact)

    def onto(self, ranked: Ranked) -> Ranked:
        """The passage as it was found now, with the scores of its page."""
        fused = ranked.fused or self.fused
        return replace(ranked, first=self.first, rerank=self.rerank, final=self.final, fused=fused)


@dataclass(frozen=True)
class Page:
    """What the pages so far came to.

    ``shown`` holds marks of passages, ``had`` hits by mark of their document, ``low`` the last hit's final score;
    ``cut`` tells that not all of the first ranking fitted into ``kept``.
    """

    generation: str
    kept: tuple[Kept, ...] = ()
    shown: frozenset[bytes] = frozenset()
    had: Counter[bytes] | None = None
    low: float = 1.0
    cut: bool = False

    def showed(self, chunk_id: str) -> bool:
        """Whether an earlier page did."""
        return mark(chunk_id) in self.shown

    def after(self, page: Sequence[Supplied], copies: Iterable[str], left: Sequence[Ranked]) -> Page:
        """With a further page, the copies that stand under its hits, and what is left."""
        shown = self.shown | {mark(item.chunk_id) for item in page}
        for chunk_id in copies:
            if len(shown) >= MAX_SHOWN:
                break  # a copy may then come as a hit of its own
            shown |= {mark(chunk_id)}
        had = None
        if self.had is not None:
            had = self.had + Counter(mark(item.ranked.candidate.document_uid) for item in page)
        low = min([self.low, *(item.final for item in page)])
        return Page(self.generation, tuple(Kept.of(r) for r in left), shown, had, low, self.cut)


def mark(uid: str) -> bytes:
    """A few bytes of an id: enough to tell a thousand apart."""
    return hashlib.blake2b(uid.encode(), digest_size=_MARK).digest()


def by_date(ranked: Sequence[Ranked], *, newest: bool) -> list[Ranked]:
    """Ordered by last update at the source; what nobody knows the date of comes last, equal dates keep their order."""

    def key(item: Ranked) -> tuple[bool, int]:
        at = item.manifest.updated_at
        return at is None, 0 if at is None else -at if newest else at

    return sorted(ranked, key=key)


class Cursors:
    """Seals and opens cursors (AES-GCM): for one tenant, subject and request, whatever process of ours reads them."""

    def __init__(self, key: bytes) -> None:
        """``key``: any secret of this deployment; ours is derived from it."""
        self._key = hashlib.sha256(b"cursor\n" + key).digest()

    def seal(self, scope: Scope, request: SearchRequest, page: Page) -> str | None:
        """A cursor; None where as much was shown as one search shows."""
        if len(page.shown) >= MAX_SHOWN:
            return None
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE)
        sealed = nonce + AESGCM(self._key).encrypt(nonce, _packed(page), _bound(scope, request))
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, scope: Scope, request: SearchRequest) -> Page | None:
        """What the request's cursor holds; None without one. Raises FieldError naming ``cursor``."""
        if request.cursor is None:
            return None
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            sealed = base64.b64decode(request.cursor + "=" * (-len(request.cursor) % 4), altchars=b"-_", validate=True)
            if len(sealed) <= _NONCE + _TAG:
                raise FieldError("cursor", f"it is not one that this service gave; {_REMEDY}")
            packed = AESGCM(self._key).decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound(scope, request))
        except (binascii.Error, ValueError) as error:
            raise FieldError("cursor", f"it is not one that this service gave; {_REMEDY}") from error
        except InvalidTag as error:
            raise FieldError("cursor", f"it belongs to another search; {_REMEDY}") from error
        if packed[0] != _FORMAT:
            raise FieldError("cursor", "another release gave it; search again without a cursor")
        return _unpacked(_inflated(packed[1:]), counted=request.per_document is not None)


def _bound(scope: Scope, request: SearchRequest) -> bytes:
    """What a cursor holds for: who asks, and all of the request but the cursor."""
    asked = request.model_dump(mode="json", exclude={"cursor"})
    return hashlib.sha256(json.dumps([scope.tenant, scope.subject, asked], sort_keys=True).encode()).digest()


def _packed(page: Page) -> bytes:
    """As much of what is kept as a cursor has room for: what does not fit is found again by a deeper search."""
    name = page.generation.encode()
    had = page.had or Counter()
    shown = b"".join(sorted(page.shown))
    counted = b"".join(uid + bytes([min(count, 255)]) for uid, count in sorted(had.items()))
    room = _ROOM - _HEAD.size - len(name) - len(shown) - len(counted)
    documents: dict[str, int] = {}
    kept: list[Kept] = []
    for one in page.kept:
        room -= _KEPT + (0 if one.document_uid in documents else 16)
        if room < 0:
            break
        documents.setdefault(one.document_uid, len(documents))
        kept.append(one)
    cut = page.cut or len(kept) < len(page.kept)
    head = _HEAD.pack(cut, page.low, len(name), len(page.shown), len(had), len(documents), len(kept))
    ids = b"".join(_bytes(uid) for uid in (*documents, *(one.chunk_id for one in kept)))
    columns = [*zip(*((k.first, _number(k.rerank), _number(k.final), k.fused) for k in kept), strict=True)]
    scores = b"".join(_planes(np.array(column, dtype=">f4")) for column in columns)
    places = _planes(np.array([documents[one.document_uid] for one in kept], dtype=">u2"))
    body = b"".join([head, name, shown, counted, places, bytes(one.exact for one in kept), scores, ids])
    return bytes([_FORMAT]) + zlib.compress(body, 6)


def _inflated(packed: bytes) -> bytes:
    """Raises FieldError for what is longer than any page of ours: only this service seals, and yet."""
    opened = zlib.decompressobj()
    body = opened.decompress(packed, _ROOM)
    if not opened.eof:
        raise FieldError("cursor", f"it is not one that this service gave; {_REMEDY}")
    return body


def _planes(numbers: NDArray[Any]) -> bytes:
    """First bytes first, then the second ones: what is alike stands together and compresses."""
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize).T.tobytes()


def _numbers(planes: bytes, dtype: str) -> list[Any]:
    """Back from ``_planes``."""
    size = np.dtype(dtype).itemsize
    rows = np.frombuffer(planes, dtype=np.uint8).reshape(size, -1).T
    found: list[Any] = np.ascontiguousarray(rows).view(dtype).reshape(-1).tolist()
    return found


def _bytes(uid: str) -> bytes:
    """``uuid.UUID(uid).bytes`` of an id of ours, at a fifth of its cost."""
    return bytes.fromhex(uid.replace("-", ""))


def _unpacked(packed: bytes, *, counted: bool) -> Page:
    cut, low, name_length, shown_count, had_count, document_count, kept_count = _HEAD.unpack_from(packed)
    at = _HEAD.size
    name = packed[at : at + name_length].decode()
    at += name_length
    shown = frozenset(packed[at + _MARK * i : at + _MARK * (i + 1)] for i in range(shown_count))
    at += _MARK * shown_count
    step = _MARK + 1
    pairs = (packed[at + step * i : at + step * (i + 1)] for i in range(had_count))
    had = Counter({pair[:_MARK]: pair[_MARK] for pair in pairs})
    at += step * had_count
    places = _numbers(packed[at : at + 2 * kept_count], ">u2")
    at += 2 * kept_count
    exact = packed[at : at + kept_count]
    at += kept_count
    width = 4 * kept_count
    first, rerank, final, fused = (
        _numbers(packed[at + width * i : at + width * (i + 1)], ">f4") for i in range(_SCORES)
    )
    at += width * _SCORES
    ids = [str(uuid.UUID(bytes=packed[i : i + 16])) for i in range(at, at + 16 * (document_count + kept_count), 16)]
    kept = tuple(
        Kept(chunk_id, ids[place], first[i], _absent(rerank[i]), _absent(final[i]), fused[i], bool(exact[i]))
        for i, (chunk_id, place) in enumerate(zip(ids[document_count:], places, strict=True))
    )
    return Page(name, kept, shown, had if counted else None, low, cut)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _absent(value: float) -> float | None:
    return None if value != value else value
