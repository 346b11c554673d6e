"""How much a PDF's compressed streams unpack to, before a library is asked to unpack them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Generator, Iterable

_STREAM = re.compile(rb"stream\r?\n")
_FLATE = re.compile(rb"/Fl(?:ateDecode)?(?![A-Za-z])")
_STEP = 1 << 20
_CHUNK = 1 << 16
_WINDOW = 2048  # bytes before 'stream' in which its dictionary is looked for
_MAX_LAYERS = 4


def unpacked_over(data: bytes, limit: int) -> bool:
    """Do the streams under FlateDecode unpack to more than ``limit`` bytes together?

    Takes what stands between 'stream' and the next one by its own end of data; layers of FlateDecode over each other
    are unpacked too. Time is linear in what is unpacked, which stops at the limit; memory is a few MB.
    """
    budget = limit
    for found in _STREAM.finditer(data):
        head = data[max(0, found.start() - _WINDOW) : found.start()]
        head = head[head.rfind(b" obj") + 1 :] if b" obj" in head else head
        layers = min(len(_FLATE.findall(head)), _MAX_LAYERS)
        if layers:
            budget -= _size(data, found.end(), layers, budget)
        if budget < 0:
            return True
    return False


def _size(data: bytes, start: int, layers: int, budget: int) -> int:
    """Bytes of all layers of one stream, counted up to a little over ``budget``."""
    chunks: Iterable[bytes] = (data[at : at + _CHUNK] for at in range(start, len(data), _CHUNK))
    counters = [0] * layers
    for layer in range(layers):
        chunks = _inflated(chunks, counters, layer)
    try:
        for _ in chunks:
            if sum(counters) > budget:
                break
    except zlib.error:  # what the library makes of it is small: it stops there too
        pass
    return sum(counters)


def _inflated(chunks: Iterable[bytes], counters: list[int], layer: int) -> Generator[bytes, None, None]:
    opener = zlib.decompressobj()
    for chunk in chunks:
        rest = chunk
        while rest and not opener.eof:
            out = opener.decompress(rest, _STEP)
            counters[layer] += len(out)
            yield out
            rest = opener.unconsumed_tail
        if opener.eof:
            return
