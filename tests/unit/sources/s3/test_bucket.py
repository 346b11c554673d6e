"""What a store answers, in the shape that S3 gives it, and what is made of it."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.response import StreamingBody
from botocore.stub import Stubber

from pipeline.clock import ManualClock
from pipeline.errors import ConfigError
from pipeline.settings_sources import S3Settings
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.remote.contract import Absent, Fetched, RateLimited, Unreadable
from pipeline.sources.s3.access import SETTLE_S
from pipeline.sources.s3.system import Bucket
from schemas.keys import DocumentRef

AT = datetime(2026, 11, 30, 12, 0, 0, 987_000, tzinfo=UTC)


class Stub:
    """A client that answers what it is told to, in order, and a bucket that asks it."""

    def __init__(self, **more: Any) -> None:
        client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        self.stubber = Stubber(client)
        self.stubber.activate()
        self.clock = ManualClock()
        settings = S3Settings.model_validate({"type": "s3", "name": "wiki", "bucket": "pages"} | more)
        self.bucket = Bucket(settings, self.clock, max_bytes=1000, client=client)

    def lists(self, *keys: str, truncated: bool = False, asked: dict[str, Any] | None = None, **more: Any) -> None:
        contents = [{"Key": k, "ETag": f'"{k}-1"', "Size": 3, "LastModified": AT} for k in keys]
        answer: dict[str, Any] = {"Contents": contents, "IsTruncated": truncated} | more
        headers = {"date": "Mon, 30 Nov 2026 12:00:10 GMT"}
        answer["ResponseMetadata"] = {"HTTPHeaders": headers, "HTTPStatusCode": 200}
        self.stubber.add_response("list_objects_v2", answer, asked)

    def gives(
        self, key: str, body: bytes = b"abc", size: int | None = None, etag: str | None = None, **more: Any
    ) -> None:
        answer = more | {
            "Body": StreamingBody(io.BytesIO(body), len(body)),
            "ContentLength": len(body) if size is None else size,
            "ETag": etag or f'"{key}-1"',
            "LastModified": AT.replace(microsecond=0),
        }
        self.stubber.add_response("get_object", answer, {"Bucket": "pages", "Key": key})

    def fails(self, code: str, status: int, method: str = "get_object", **headers: str) -> None:
        self.stubber.add_client_error(method, code, http_status_code=status, response_meta={"HTTPHeaders": headers})


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    yield made
    made.stubber.assert_no_pending_responses()


def ref(key: str) -> DocumentRef:
    return DocumentRef(tenant="acme", source="wiki", kind="page", id=key)


@pytest.mark.requirement("A6", "I6")
def test_a_listing_and_a_reading_give_one_revision(stub: Stub) -> None:
    """A listing tells fractions of a second, a reading's header none."""
    stub.lists("a.md")
    stub.gives("a.md")
    listed = stub.bucket.listing(None).documents[0]
    answer = stub.bucket.fetch(ref("a.md"))
    assert isinstance(answer, Fetched)
    assert answer.document.revision == listed.revision == f"a.md-1:3:{int(AT.timestamp())}"
    assert answer.document.updated_at == listed.updated_at == int(AT.timestamp()) * 1_000_000


@pytest.mark.requirement("F02", "F03")
def test_a_listing_goes_on_behind_a_key_or_by_a_token(stub: Stub) -> None:
    asked = {"Bucket": "pages", "Prefix": "", "MaxKeys": 1000}
    stub.lists("a.md", "b/", truncated=True, asked=asked, NextContinuationToken="token")
    stub.lists(truncated=True, asked=asked | {"StartAfter": "b/"}, NextContinuationToken="token")
    stub.lists("c.md", asked=asked | {"ContinuationToken": "token"})
    first = stub.bucket.listing(None)
    second = stub.bucket.listing(first.next)  # a page without a key is not the end
    third = stub.bucket.listing(second.next)
    assert [d.document.id for d in (*first.documents, *second.documents, *third.documents)] == ["a.md", "c.md"]
    assert third.next is None


@pytest.mark.requirement("F07", "F09")
def test_keys_that_only_look_alike_and_keys_without_a_way(stub: Stub) -> None:
    stub.lists("Cafe\u0301.md", "Caf\u00e9.md", "/x.md", "a//y.md", "/.access.yaml", "z\ufffd.md")
    stub.lists("Cafe\u0301.md", "Caf\u00e9.md", "/x.md", "a//y.md", "/.access.yaml", "z\ufffd.md")
    page = stub.bucket.listing(None)
    assert [d.document.id for d in page.documents] == ["Cafe\u0301.md", "Caf\u00e9.md"] and not page.problems
    told = stub.bucket.readers()  # "/.access.yaml" is not read: it would be taken for the root's
    assert len([p for p in told.problems if "passed by" in p]) == 4
    stub.bucket.listing(None)
    assert isinstance(stub.bucket.fetch(ref("a//y.md")), Absent)


@pytest.mark.requirement("I8", "F02")
@pytest.mark.parametrize(
    ("code", "status", "answer"),
    [
        ("NoSuchKey", 404, Absent),
        ("AccessDenied", 403, Unreadable),
        ("InvalidObjectState", 403, Unreadable),
        ("InvalidRequest", 400, Unreadable),
        ("NoSuchBucket", 404, ConfigError),
        ("404", 404, SourceUnavailable),  # of something that stands before the store
        ("InvalidAccessKeyId", 403, SourceUnavailable),
        ("SignatureDoesNotMatch", 403, SourceUnavailable),
        ("ExpiredToken", 400, SourceUnavailable),
        ("RequestTimeTooSkewed", 403, SourceUnavailable),
        ("PermanentRedirect", 301, SourceUnavailable),
        ("InternalError", 500, SourceUnavailable),
        ("SlowDown", 503, RateLimited),
        ("TooManyRequests", 429, RateLimited),
    ],
)
def test_whose_fault_it_is(stub: Stub, code: str, status: int, answer: type) -> None:
    """Only the key's own absence deletes, only its own refusal hides; the rest says nothing about documents."""
    stub.fails(code, status)
    if issubclass(answer, Exception):
        with pytest.raises(answer) as caught:
            stub.bucket.fetch(ref("a.md"))
        assert caught.type is answer
    else:
        assert isinstance(stub.bucket.fetch(ref("a.md")), answer)


@pytest.mark.requirement("I8")
def test_patience_is_kept_and_grows(stub: Stub) -> None:
    stub.fails("SlowDown", 503, "list_objects_v2", **{"retry-after": "7"})
    with pytest.raises(RateLimited) as caught:
        stub.bucket.listing(None)
    assert caught.value.retry_after == 7.0
    stub.clock.advance(3)
    with pytest.raises(RateLimited) as caught:  # nothing is asked meanwhile
        stub.bucket.fetch(ref("a.md"))
    assert caught.value.retry_after == 4.0 and stub.bucket.reach.requests == 1
    stub.clock.advance(5)
    stub.fails("SlowDown", 503, "list_objects_v2")
    with pytest.raises(RateLimited) as caught:
        stub.bucket.listing(None)
    assert caught.value.retry_after == 2.0 and stub.bucket.reach.limited == 2


@pytest.mark.requirement("I8", "F22")
def test_bodies_cut_short_or_without_end(stub: Stub) -> None:
    stub.gives("a.md", b"x" * 5000)
    answer = stub.bucket.fetch(ref("a.md"))
    assert isinstance(answer, Fetched) and len(answer.document.body) == 1001
    stub.gives("a.md", b"half", size=8)
    with pytest.raises(SourceUnavailable, match="after 4 of 8"):
        stub.bucket.fetch(ref("a.md"))


@pytest.mark.requirement("A2", "F22")
def test_objects_that_are_stored_compressed(stub: Stub) -> None:
    stub.gives("a.md", gzip.compress(b"# Lungfish\n"), ContentEncoding="gzip")
    answer = stub.bucket.fetch(ref("a.md"))
    assert isinstance(answer, Fetched) and answer.document.title == "Lungfish"
    stub.gives("a.md", gzip.compress(b"x" * 10_000_000)[:1500], ContentEncoding="gzip")
    answer = stub.bucket.fetch(ref("a.md"))  # no more of it is unpacked than is needed to refuse it
    assert isinstance(answer, Fetched) and answer.document.body == b"x" * 1001
    stub.gives("a.md", b"# Plain\n", ContentEncoding="gzip")
    answer = stub.bucket.fetch(ref("a.md"))
    assert isinstance(answer, Fetched) and answer.document.title == "Plain"


@pytest.mark.requirement("I8")
def test_a_way_that_is_closed(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**given: Any) -> None:
        raise EndpointConnectionError(endpoint_url="http://store")

    monkeypatch.setattr(stub.bucket._store._client, "get_object", refuse)
    with pytest.raises(SourceUnavailable):
        stub.bucket.fetch(ref("a.md"))
    assert stub.bucket.reach.failures == 1


@pytest.mark.requirement("A8", "I12")
def test_access_files_are_read_when_they_are_listed_as_changed(stub: Stub) -> None:
    keys = (".access.yaml", "a.md", "groups.yaml")
    stub.lists(*keys)
    stub.gives(".access.yaml", b"allow: [everyone]", size=3)
    stub.gives("groups.yaml", b"users: [ann]", size=3)
    told = stub.bucket.readers()
    assert {m.principal: m.parents for m in told.memberships}["everyone"] == ("audience:wiki/",) and not told.alarms
    stub.lists(*keys)
    stub.bucket.listing(None)
    assert not stub.bucket.changes("listing").access
    assert stub.bucket.readers() == told  # nothing is asked
    stub.fails("InternalError", 500)
    stub.bucket.fetch(ref(".access.yaml"))  # a notification named it
    assert stub.bucket.changes("listing").access
    with pytest.raises(SourceUnavailable):
        stub.bucket.readers()
    assert stub.bucket.changes("listing").access  # not forgotten
    stub.fails("AccessDenied", 403)
    assert "the store refuses it" in stub.bucket.readers().alarms[0]


@pytest.mark.requirement("I12", "A8")
def test_an_access_file_that_is_missing_for_a_moment_opens_nothing(stub: Stub) -> None:
    stub.lists("x/.access.yaml", "x/a.md")
    stub.gives("x/.access.yaml", b"allow: []")
    stub.bucket.readers()
    stub.lists("x/a.md")
    stub.bucket.listing(None)
    assert stub.bucket.changes("listing").access
    stub.fails("NoSuchKey", 404)
    assert not any("audience:wiki/x" in m.parents for m in stub.bucket.readers().memberships)
    stub.clock.advance(SETTLE_S + 0.1)
    assert stub.bucket.changes("listing").access
    stub.gives("x/.access.yaml", b"allow: []", etag='"again"')  # written again since the listing
    assert not any("audience:wiki/x" in m.parents for m in stub.bucket.readers().memberships)


@pytest.mark.requirement("A8", "I8")
def test_an_access_file_that_could_not_be_read_is_asked_for_again(stub: Stub) -> None:
    stub.lists("a.md")
    stub.bucket.readers()
    stub.lists(".access.yaml", "a.md")
    stub.bucket.listing(None)
    stub.fails("InternalError", 500)
    with pytest.raises(SourceUnavailable):
        stub.bucket.readers()
    assert stub.bucket.changes("listing").access
    stub.gives(".access.yaml", b"allow: []", size=3)
    told = stub.bucket.readers()
    assert not any("audience:wiki/" in m.parents for m in told.memberships)
    assert not stub.bucket.changes("listing").access


@pytest.mark.requirement("I12")
def test_a_folder_that_was_quiet_needs_no_second_look(stub: Stub) -> None:
    stub.lists("x/a.md")
    told = stub.bucket.readers()
    assert not told.undecided and not stub.bucket.changes("listing").access


@pytest.mark.requirement("A1")
def test_an_account_that_nobody_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    settings = S3Settings.model_validate({"type": "s3", "name": "wiki", "bucket": "pages"})
    with pytest.raises(ConfigError, match=r"sources\.access_key"):
        Bucket(settings, ManualClock(), max_bytes=1).start()


@pytest.mark.requirement("A1")
def test_settings_that_cannot_work() -> None:
    with pytest.raises(ConfigError, match=r"sources\.access_key"):
        Bucket(
            S3Settings.model_validate({"type": "s3", "name": "wiki", "bucket": "pages", "access_key": "k"}),
            ManualClock(),
            max_bytes=1,
        )
    keys = {"access_key": "k", "secret_key": "s"}
    named = S3Settings.model_validate({"type": "s3", "name": "wiki", "bucket": "no bucket's name!"} | keys)
    with pytest.raises(ConfigError, match=r"sources\.bucket"):
        Bucket(named, ManualClock(), max_bytes=1).start()
