"""Messages of pgoutput, in bytes made by hand as PostgreSQL's protocol describes them."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.outbox.pgoutput import Decoder, Transaction
from pipeline.sources.outbox.position import Place, Position, lsn_of, lsn_text

TABLE = "public.headwater_outbox"


def begin(xid: int = 7) -> bytes:
    return b"B" + struct.pack(">qqI", 900, 0, xid)


def commit(end: int) -> bytes:
    return b"C" + struct.pack(">bqqq", 0, end - 48, end, 0)


def relation(oid: int, schema: str, name: str, columns: list[str]) -> bytes:
    parts = b"".join(b"\x01" + c.encode() + b"\x00" + struct.pack(">Ii", 25, -1) for c in columns)
    names = schema.encode() + b"\x00" + name.encode() + b"\x00"
    return b"R" + struct.pack(">I", oid) + names + b"d" + struct.pack(">h", len(columns)) + parts


def insert(oid: int, values: list[str | None]) -> bytes:
    parts = b"".join(b"n" if v is None else b"t" + struct.pack(">I", len(v.encode())) + v.encode() for v in values)
    return b"I" + struct.pack(">I", oid) + b"N" + struct.pack(">h", len(values)) + parts


def fed(*messages: bytes) -> list[Transaction]:
    decoder = Decoder(TABLE)
    return [t for t in map(decoder.feed, messages) if t is not None]


OURS = relation(5, "public", "headwater_outbox", ["id", "xact", "payload"])


@pytest.mark.requirement("A7")
def test_transactions_come_whole_with_their_rows() -> None:
    found = fed(
        begin(), OURS, insert(5, ["1", "700", '{"ñ": "漢"}']), insert(5, ["2", "700", None]), commit(1000),
        begin(), insert(5, ["3", "701", "{}"]), commit(2000),
    )  # fmt: skip
    assert [t.end for t in found] == [1000, 2000]
    assert found[0].rows == [
        {"id": "1", "xact": "700", "payload": '{"ñ": "漢"}'}, {"id": "2", "xact": "700", "payload": None}
    ]  # fmt: skip
    assert found[1].rows == [{"id": "3", "xact": "701", "payload": "{}"}]


@pytest.mark.requirement("A7")
def test_other_tables_and_clearing_up_say_nothing() -> None:
    other = relation(6, "public", "other", ["id"])
    found = fed(
        begin(), OURS, other, insert(6, ["9"]), b"U" + b"\x00" * 9, b"D" + b"\x00" * 9, b"T" + b"\x00" * 9,
        b"O" + b"\x00" * 9, b"Y" + b"\x00" * 9, b"M" + b"\x00" * 9, insert(77, ["1"]), commit(1000),
        begin(), relation(5, "else", "headwater_outbox", ["id"]), insert(5, ["1"]), commit(2000),
    )  # fmt: skip
    assert [t.rows for t in found] == [[], []]


@pytest.mark.requirement("A7")
def test_a_column_that_is_added_later() -> None:
    later = relation(5, "public", "headwater_outbox", ["id", "xact", "payload", "note"])
    found = fed(begin(), OURS, insert(5, ["1", "7", "{}"]), later, insert(5, ["2", "7", "{}", "x"]), commit(10))
    assert [r.get("note") for r in found[0].rows] == [None, "x"]


@pytest.mark.requirement("F20")
@pytest.mark.parametrize("message", [b"", b"?", b"C\x00", b"R\x00", begin() + b"", insert(5, ["1", "2", "3"])[:-1]])
def test_what_is_no_message(message: bytes) -> None:
    decoder = Decoder(TABLE)
    decoder.feed(OURS)
    if message == begin():
        assert decoder.feed(message) is None
    else:
        with pytest.raises(ValueError, match=r"message|found|column"):
            decoder.feed(message)


@pytest.mark.requirement("F20")
def test_bytes_that_are_no_text_stop_no_other_row() -> None:
    bad = insert(5, ["1", "7", "{}"]).replace(b"{}", b"\xff\xfe")
    found = fed(begin(), OURS, bad, insert(5, ["2", "7", "{}"]), commit(10))
    assert [r["payload"] for r in found[0].rows] == ["\udcff\udcfe", "{}"]


@pytest.mark.requirement("F20")
@given(st.binary(max_size=60), st.sampled_from([b"R", b"I", b"C", b"B", b""]))
def test_no_bytes_raise_anything_else(noise: bytes, kind: bytes) -> None:
    decoder = Decoder(TABLE)
    decoder.feed(OURS)
    with contextlib.suppress(ValueError):
        decoder.feed(kind + noise)


@pytest.mark.requirement("I9")
def test_a_cursor_is_read_as_it_was_written() -> None:
    for position in (
        Position(), Position(Place(2**40, 5)), Position(Place(1, 2), 2**40 + 15, Place(3, 4)),
    ):  # fmt: skip
        assert Position.read(position.text()) == position
    assert Position.read("") == Position()
    assert lsn_text(lsn_of("16/B374D848")) == "16/B374D848"


@pytest.mark.requirement("I9")
@pytest.mark.parametrize(
    "text", ["x", "[]", "{}", '{"after":[1]}', '{"after":[1,2],"lsn":5}', '{"after":["a","b"]}', "7"]
)
def test_what_is_no_cursor(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Position.read(text)
