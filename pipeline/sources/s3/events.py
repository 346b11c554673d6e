"""Event notifications of S3-compatible stores. They come at least once and in any order, and only say where to look."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote_plus

MAX_RECORDS = 10_000
_ENCODED = re.compile(r"[A-Za-z0-9._~!*'()/+%-]*")


def event_keys(payload: bytes, bucket: str) -> list[str]:
    """Keys of a bucket that a notification names, each once, whatever happened to them.

    What happened is not asked: the newest state is read, so neither the order of notifications nor ``sequencer``
    matters. A delete marker, its removal, an expiry and a new object all mean that the key is looked at. Raises
    ValueError where the payload is no such notification.
    """
    try:
        told = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ValueError("the notification is not JSON: send the store's own event messages") from error
    if isinstance(told, dict) and told.get("Event") == "s3:TestEvent":
        return []
    records = told.get("Records") if isinstance(told, dict) else None
    if not isinstance(records, list) or len(records) > MAX_RECORDS:
        raise ValueError("Records is no list of events: send the store's own event messages")
    keys: dict[str, None] = {}
    for index, record in enumerate(records):
        try:
            about, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"Records[{index}].s3 names no bucket and object") from error
        if not isinstance(key, str):
            raise ValueError(f"Records[{index}].s3.object.key is not text")
        if about == bucket:
            keys[_decoded(key)] = None
    return list(keys)


def _decoded(key: str) -> str:
    """Keys are encoded as in a form: a blank is a plus sign. Some stores encode none: what no form holds stays."""
    return unquote_plus(key) if _ENCODED.fullmatch(key) else key
