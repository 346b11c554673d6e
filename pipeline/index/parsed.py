"""Records kept parsed: searches meet the same ones again, and parsing them costs most."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypeVar, cast

from pydantic import BaseModel

from pipeline.index.objects import parse

M = TypeVar("M", bound=BaseModel)


class Parsed:
    """The newest text of each record and its frozen model, by id; ids used longest ago are forgotten. Thread-safe.

    One entry a record: what replaces it, or the end of its document, leaves nothing of the older text behind.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[str, dict[str, tuple[str, BaseModel]]] = OrderedDict()  # by id, by collection
        self._lock = threading.Lock()

    def get(self, model: type[M], collection: str, uid: str, record: str) -> M:
        """The model of exactly this text. Raises Reject."""
        with self._lock:
            known = self._known.get(uid, {}).get(collection)
            if known is not None and known[0] == record:
                self._known.move_to_end(uid)
                return cast(M, known[1])
        made = parse(model, record, model.__name__)
        with self._lock:
            self._known.setdefault(uid, {})[collection] = (record, made)
            self._known.move_to_end(uid)
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
        return made

    def remembered(self, uid: str) -> list[BaseModel]:
        """What is kept of records with this id."""
        with self._lock:
            return [model for _, model in self._known.get(uid, {}).values()]

    def forget(self, uid: str) -> None:
        """Keep nothing of records with this id."""
        with self._lock:
            self._known.pop(uid, None)
