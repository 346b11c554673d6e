"""Event notifications in the shapes that stores send them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.clock import ManualClock
from pipeline.settings_sources import S3Settings
from pipeline.sources.s3.events import event_keys
from pipeline.sources.s3.system import Bucket


def record(
    key: Any, name: str = "ObjectCreated:Put", bucket: str = "pages", sequencer: str = "0055AED6DCD90281E5"
) -> Any:
    about = {
        "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
        "object": {"key": key, "sequencer": sequencer},
    }
    return {
        "eventVersion": "2.3",
        "eventSource": "aws:s3",
        "eventName": name,
        "s3": {"s3SchemaVersion": "1.0", **about},
    }


def payload(*records: Any, **more: Any) -> bytes:
    return json.dumps({"Records": list(records)} | more).encode()


@pytest.mark.requirement("F07")
@pytest.mark.parametrize(
    ("told", "key"),
    [
        ("a+b%2Bc.md", "a b+c.md"),
        ("caf%C3%A9/%23%3F%25.md", "café/#?%.md"),
        ("plain/key.md", "plain/key.md"),
        ("not encoded+at all.md", "not encoded+at all.md"),  # stores that encode nothing
        ("café+.md", "café+.md"),
    ],
)
def test_keys_are_decoded(told: str, key: str) -> None:
    assert event_keys(payload(record(told)), "pages") == [key]


@pytest.mark.requirement("F02", "A6")
def test_what_happened_does_not_matter_nor_how_often_nor_in_which_order() -> None:
    told = payload(
        record("b.md", "ObjectRemoved:DeleteMarkerCreated", sequencer="02"),
        record("b.md", "ObjectCreated:Copy", sequencer="01"),
        record("a.md", "ObjectRemoved:Delete"),
        record("c.md", "LifecycleExpiration:Delete"),
        record("d.md", "ObjectRestore:Completed"),
        record("b.md", bucket="another"),
        record("x.md", bucket="another"),
        EventName="s3:ObjectRemoved:Delete",
    )
    assert event_keys(told, "pages") == ["b.md", "a.md", "c.md", "d.md"]
    assert event_keys(b'{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"pages"}', "pages") == []


@pytest.mark.requirement("I8")
@pytest.mark.parametrize(
    "told",
    [b"", b"\xff", b"[]", b"{}", b"[" * 100_000, b'{"Records":{}}', payload({}), payload(None), payload(record(3))],
)
def test_what_is_no_notification_is_refused(told: bytes) -> None:
    with pytest.raises(ValueError, match=r"notification|Records"):
        event_keys(told, "pages")


@pytest.mark.requirement("A1")
def test_documents_and_access_files_of_the_source_only() -> None:
    settings = {"type": "s3", "name": "wiki", "bucket": "pages", "prefix": "docs"}
    bucket = Bucket(S3Settings.model_validate(settings), ManualClock(), max_bytes=1, client=object())
    keys = [
        "docs/a.md",
        "docs-old/a.md",
        "a.md",
        "docs/x.svg",
        "docs/.access.yaml",
        "docs/.h/a.md",
        "docs/d/",
        "docs//b.md",
    ]
    assert [r.id for r in bucket.event_refs(payload(*map(record, keys)))] == ["docs/a.md", "docs/.access.yaml"]
