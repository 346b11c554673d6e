"""Zip containers are checked before any library opens them."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from pipeline.errors import DocumentError
from pipeline.extract.containers import check_zip, member_bytes
from pipeline.extract.reading import Limits

pytestmark = pytest.mark.requirement("A2")


def packed(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def refusal(data: bytes, limits: Limits | None = None, *, doctypes: bool = False) -> str:
    with pytest.raises(DocumentError) as caught:
        check_zip(data, limits or Limits(), doctypes=doctypes)
    assert caught.value.reason.startswith("body: ") and ";" in caught.value.reason
    return caught.value.kind


def test_a_sound_container_names_its_members_and_not_the_ones_that_leave_it() -> None:
    data = packed({"a/b.xml": b"<?xml version='1.0'?><!-- x --><a/>", "../evil": b"1", "/root": b"2", "c:\\x": b"3"})
    contents = check_zip(data, Limits())
    assert contents.names == ("a/b.xml",) and contents.warnings == ()
    assert "a/b.xml" in contents and member_bytes(data, "a/b.xml", 100) == b"<?xml version='1.0'?><!-- x --><a/>"
    assert member_bytes(data, "missing") is None


def test_macros_are_told() -> None:
    warning = check_zip(packed({"word/vbaProject.bin": b"\x01"}), Limits()).warnings[0]
    assert warning.startswith("macro: ")


def test_bombs_are_refused_by_ratio_and_by_size() -> None:
    assert refusal(packed({"a.xml": b"<a/>" + b" " * (11 << 20)})) == "bomb"
    assert refusal(packed({"a": bytes(range(256)) * 40}), Limits(unpacked_bytes=10_000)) == "bomb"
    with pytest.raises(DocumentError) as caught:
        member_bytes(packed({"a": b"12345"}), "a", 4)
    assert caught.value.kind == "bomb"


def test_a_directory_that_lies_about_a_size_is_not_believed() -> None:
    data = bytearray(packed({"a": b"x" * 50_000}))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", data, data.index(signature) + offset, 10)
    assert refusal(bytes(data), Limits(unpacked_bytes=1000)) in ("bomb", "malformed")


def test_many_members_are_refused() -> None:
    assert refusal(packed({str(n): b"" for n in range(20_001)}, zipfile.ZIP_STORED)) == "bomb"


def test_encrypted_members_are_refused() -> None:
    data = bytearray(packed({"a": b"secret"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    assert refusal(bytes(data)) == "encrypted"


@pytest.mark.parametrize("cut", [10, 60, 120])
def test_truncated_files_are_refused(cut: int) -> None:
    assert refusal(packed({"a.xml": b"<a>text</a>", "b.xml": b"<b/>"})[:cut]) == "malformed"


def test_damaged_data_and_odd_packing_are_refused() -> None:
    data = bytearray(packed({"a.bin": bytes(range(256)) * 8}))
    data[60] ^= 0xFF
    assert refusal(bytes(data)) == "malformed"
    assert refusal(packed({"a": b"x" * 100}, zipfile.ZIP_LZMA)) == "malformed"


@pytest.mark.parametrize(
    ("xml", "kind", "with_doctypes"),
    [
        (b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "bomb", "bomb"),
        (b"<?xml version='1.0'?><!-- > --><!DOCTYPE a SYSTEM '>' [<!ENTITY x 'y'>]><a/>", "bomb", "bomb"),
        ('<!DOCTYPE a [<!ENTITY x "y">]><a/>'.encode("utf-16"), "bomb", "bomb"),
        (b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://x/y.dtd"><a/>', "malformed", None),
        (b"<!--" + b"-" * 70_000 + b"--><a/>", "malformed", "malformed"),
    ],
)
def test_xml_members_declare_no_entities(xml: bytes, kind: str, with_doctypes: str | None) -> None:
    data = packed({"word/document.xml": xml})
    assert refusal(data) == kind
    if with_doctypes is None:
        assert check_zip(data, Limits(), doctypes=True).names == ("word/document.xml",)
    else:
        assert refusal(data, doctypes=True) == with_doctypes
