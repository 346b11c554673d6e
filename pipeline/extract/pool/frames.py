"""What parent and child say to each other over pipes: a JSON header and raw bytes, both with their length before them.

    4 bytes length of the header | 4 bytes length of the payload | header (JSON object, UTF-8) | payload

No pickle: what a child sends was made under the influence of a document and is read as data only.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = struct.Struct(">II")
MAX_HEADER = 64 << 10
MAX_BODY = (1 << 32) - 1  # whoever hands bodies in bounds them (bodies.max_bytes)
_PIECE = 1 << 20


class BrokenFrame(Exception):
    """The other side sent what is no frame, or one beyond the agreed size."""


class TooLong(BrokenFrame):
    """A payload beyond the agreed size."""


@dataclass(frozen=True)
class Frame:
    """One message."""

    header: Mapping[str, Any]
    payload: bytes = b""


def packed(header: Mapping[str, Any], payload: bytes = b"") -> list[bytes]:
    """The pieces of a message in order; the payload is not copied."""
    head = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return [PREFIX.pack(len(head), len(payload)) + head, payload] if payload else [PREFIX.pack(len(head), 0) + head]


class Collector:
    """Puts a message together from what a pipe gives, in pieces of any size."""

    def __init__(self, max_payload: int) -> None:
        self._max = max_payload
        self._data = bytearray()
        self._lengths: tuple[int, int] | None = None

    def feed(self, piece: bytes) -> Frame | None:
        """The message once it is complete. Raises BrokenFrame for lengths out of bounds, a bad header, bytes beyond."""
        self._data += piece
        if self._lengths is None:
            if len(self._data) < PREFIX.size:
                return None
            head, payload = PREFIX.unpack_from(self._data)
            if head > MAX_HEADER:
                raise BrokenFrame(f"a header of {head} bytes")
            if payload > self._max:
                raise TooLong(f"a payload of {payload} bytes, over {self._max}")
            self._lengths = head, payload
        head, payload = self._lengths
        missing = PREFIX.size + head + payload - len(self._data)
        if missing > 0:
            return None
        if missing < 0:
            raise BrokenFrame(f"{-missing} bytes after the end of a message")
        start = PREFIX.size + head
        try:
            header = json.loads(self._data[PREFIX.size : start])
        except ValueError as error:
            raise BrokenFrame(f"a header that is no JSON: {error}") from error
        if not isinstance(header, dict):
            raise BrokenFrame("a header that is no object")
        return Frame(header, bytes(memoryview(self._data)[start:]))

    def missing(self) -> int:
        """Bytes that are certainly still to come: of the lengths, and once they are known of everything."""
        if self._lengths is None:
            return max(0, PREFIX.size - len(self._data))
        return max(0, PREFIX.size + sum(self._lengths) - len(self._data))


def receive(fd: int, max_payload: int) -> Frame | None:
    """Blocks for one message; None at the end of the pipe. Raises BrokenFrame."""
    collector, frame, begun = Collector(max_payload), None, False
    wanted = PREFIX.size
    while frame is None:
        piece = os.read(fd, wanted)
        if not piece:
            if begun:
                raise BrokenFrame("the pipe ended within a message")
            return None
        begun = True
        frame = collector.feed(piece)
        # Never beyond this message: the next one may follow at once.
        wanted = min(_PIECE, collector.missing())
    return frame


def send(fd: int, header: Mapping[str, Any], payload: bytes = b"") -> None:
    """Blocks until the message is written. Raises OSError where the other end is closed."""
    for piece in packed(header, payload):
        view = memoryview(piece)
        while view:
            view = view[os.write(fd, view) :]
