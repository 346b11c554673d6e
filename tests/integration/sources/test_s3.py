"""A bucket of a real S3-compatible server: the life of a document, of a group, of a right, and what stores do."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config

from infra.progress import Quiet
from infra.servers import s3
from pipeline.clock import Clock, ManualClock
from pipeline.errors import ConfigError
from pipeline.settings_sources import S3Settings
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.remote.contract import Absent, Fetched, Listed, Unreadable
from pipeline.sources.remote.source import Rhythm
from pipeline.sources.s3.access import SETTLE_S
from pipeline.sources.s3.system import Bucket
from schemas.access import AccessRule, Closure
from schemas.keys import DocumentRef
from tests.integration.sources.owned import OwnedSystem

pytestmark = pytest.mark.timeout(900)  # the server may have to be built

GROUPS = "users: [ann, bob]\ngroups: {eng: [ann]}\n"


class Hook:
    """Receives what the server tells."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        told = self.told

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path, hook: Hook) -> Iterator[s3.S3Server]:
    if not s3.available(cache_dir):
        pytest.skip("no S3-compatible server: it is built with Go, and there is no Go on this machine")
    program = s3.obtain(cache_dir, Quiet())
    address = f"http://127.0.0.1:{hook.server.server_address[1]}/"
    running = s3.S3Server(program, tmp_path_factory.mktemp("s3"), webhook=address)
    running.start()
    yield running
    running.stop()


class Store:
    """A bucket as its users have it."""

    def __init__(self, server: s3.S3Server) -> None:
        self.server = server
        self.name = f"wiki-{uuid4().hex[:12]}"
        self.client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            config=Config(s3={"addressing_style": "path"}),
        )
        self.client.create_bucket(Bucket=self.name)

    def put(self, key: str, text: str | bytes = "# Page\n", **more: Any) -> None:
        body = text.encode() if isinstance(text, str) else text
        self.client.put_object(Bucket=self.name, Key=key, Body=body, **more)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def source(self, clock: Clock | None = None, **more: Any) -> Bucket:
        settings = {
            "type": "s3",
            "name": "wiki",
            "bucket": self.name,
            "endpoint": self.server.endpoint,
            "access_key": self.server.access_key,
            "secret_key": self.server.secret_key,
        }
        return Bucket(S3Settings.model_validate(settings | more), clock or ManualClock(), max_bytes=100_000)


@pytest.fixture
def store(server: s3.S3Server) -> Store:
    made = Store(server)
    made.put("groups.yaml", GROUPS)
    made.put(".access.yaml", "allow: [everyone]\n")
    made.put("a.md", "# Lungfish\n")
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bucket(store: Store, clock: ManualClock) -> Iterator[Bucket]:
    made = store.source(clock)
    yield made
    made.close()


def listed(bucket: Bucket) -> dict[str, Listed]:
    """One whole listing, by key."""
    at: str | None = None
    found: dict[str, Listed] = {}
    while True:
        page = bucket.listing(at)
        assert not page.problems
        found |= {one.document.id: one for one in page.documents}
        if (at := page.next) is None:
            return found


def ref(key: str) -> DocumentRef:
    return DocumentRef(tenant="acme", source="wiki", kind="page", id=key)


def fetched(bucket: Bucket, key: str) -> Fetched:
    answer = bucket.fetch(ref(key))
    assert isinstance(answer, Fetched), answer
    return answer


def may_read(bucket: Bucket, user: str, key: str) -> bool:
    """What the query service would say once these readers are on the log."""
    parents = {one.principal: one.parents for one in bucket.readers().memberships}
    if f"user:{user}" not in parents:
        return False
    seen, todo = {"everyone"}, [f"user:{user}", "everyone"]
    while todo:
        one = todo.pop()
        seen.add(one)
        todo += [p for p in parents[one] if p not in seen]
    rule = fetched(bucket, key).document.rule
    assert isinstance(rule, AccessRule)
    return rule.admits(Closure(principals=frozenset(seen)), 0)


def look(bucket: Bucket) -> None:
    """What an owner does first."""
    listed(bucket)
    bucket.readers()


@pytest.mark.requirement("A1", "F01", "F02")
def test_the_life_of_a_document(store: Store, bucket: Bucket) -> None:
    assert bucket.start() == "listing" and listed(bucket).keys() == {"a.md"}
    store.put("docs/b.md", "# Newt\n\nsmall")
    first = listed(bucket)["docs/b.md"]
    document = fetched(bucket, "docs/b.md").document
    assert document.revision == first.revision and document.updated_at == first.updated_at
    assert (document.title, document.path, document.url) == ("Newt", "docs/b.md", f"s3://{store.name}/docs/b.md")
    assert listed(bucket)["docs/b.md"] == first  # nothing happened: nothing is read
    store.put("docs/b.md", "# Newt\n\nred")
    second = listed(bucket)["docs/b.md"]
    assert second.revision != first.revision == document.revision
    assert fetched(bucket, "docs/b.md").document.revision == second.revision
    store.delete("docs/b.md")
    assert "docs/b.md" not in listed(bucket) and isinstance(bucket.fetch(ref("docs/b.md")), Absent)


@pytest.mark.requirement("F02")
def test_a_delete_marker_deletes_and_its_removal_restores(store: Store, bucket: Bucket) -> None:
    store.client.put_bucket_versioning(Bucket=store.name, VersioningConfiguration={"Status": "Enabled"})
    store.put("v.md", "# One\n")
    store.put("v.md", "# Two\n")
    before = listed(bucket)["v.md"]
    marker = store.client.delete_object(Bucket=store.name, Key="v.md")["VersionId"]
    assert "v.md" not in listed(bucket) and isinstance(bucket.fetch(ref("v.md")), Absent)
    store.client.delete_object(Bucket=store.name, Key="v.md", VersionId=marker)
    restored = listed(bucket)["v.md"]  # its revision may be the old one: only its absence tells that it is to be read
    assert str(restored.revision).split(":")[0] == str(before.revision).split(":")[0]
    assert fetched(bucket, "v.md").document.title == "Two"


@pytest.mark.requirement("F07", "F09")
def test_keys_of_any_kind_stay_themselves(store: Store, bucket: Bucket) -> None:
    keys = [
        "2025/report.md",
        "2026/report.md",
        "odd/a b+c%20&=?#.md",
        "odd/Café.md",
        "odd/Cafe\u0301.md",
        "odd/new\nline.md",
        "odd/tab\t.md",
        "odd/'\"<>&.md",
        "odd/日本語.md",
        "UPPER.md",
        "upper.md",
    ]
    for key in keys:
        store.put(key, f"# {keys.index(key)}\n")
    store.put("folder/", b"")
    store.put("picture.svg", b"\x89PNG")
    store.put(".hidden/x.md")
    store.put("odd/\x01control.md")  # this store loses the character in its listings
    found = listed(bucket)
    assert found.keys() == {*keys, "a.md"}
    for key in keys:
        document = fetched(bucket, key).document
        assert document.body == f"# {keys.index(key)}\n".encode() and document.path == key
        assert document.revision == found[key].revision
    told = bucket.readers()
    assert "audience:wiki/folder" in {m.principal for m in told.memberships}
    assert any("control.md: passed by" in p for p in told.problems)


@pytest.mark.requirement("F02", "F03")
def test_more_keys_than_a_page_holds(store: Store, bucket: Bucket) -> None:
    for n in range(1005):
        (Path(store.server._folder) / "data" / store.name / f"m{n:04}.md").write_text("# x\n")
    first = bucket.listing(None)
    assert first.next is not None
    store.put("a0.md")  # written behind the place where the listing is
    rest = store.source().listing(first.next)  # another process goes on
    keys = [one.document.id for one in (*first.documents, *rest.documents)]
    assert rest.next is None and len(keys) == len(set(keys)) == 1006 and keys == sorted(keys)


@pytest.mark.requirement("A1")
def test_an_upload_in_parts(store: Store, bucket: Bucket) -> None:
    given = {"Bucket": store.name, "Key": "parts.md"}
    upload = store.client.create_multipart_upload(**given)["UploadId"]
    bodies = [b"# Parts\n" + b"x" * (5 << 20), b"end"]
    parts = [
        {"PartNumber": n, "ETag": store.client.upload_part(**given, UploadId=upload, PartNumber=n, Body=b)["ETag"]}
        for n, b in enumerate(bodies, 1)
    ]
    assert "parts.md" not in listed(bucket)  # half written
    store.client.complete_multipart_upload(**given, UploadId=upload, MultipartUpload={"Parts": parts})
    found = listed(bucket)["parts.md"]
    assert found.revision is not None and "-2:" in found.revision  # no hash of the content
    document = fetched(bucket, "parts.md").document
    assert document.revision == found.revision and len(document.body) == 100_001  # enough to be refused


@pytest.mark.requirement("A8", "I4")
def test_the_life_of_a_right(store: Store, bucket: Bucket, clock: ManualClock) -> None:
    store.put("docs/b.md")
    store.put("docs/.access.yaml", "allow: [group:eng]\n")
    look(bucket)
    assert may_read(bucket, "ann", "docs/b.md") and not may_read(bucket, "bob", "docs/b.md")
    listed(bucket)
    assert not bucket.changes("listing").access
    store.put("docs/.access.yaml", "allow: [user:bob]\n")
    listed(bucket)
    assert bucket.changes("listing").access
    assert may_read(bucket, "bob", "docs/b.md") and not may_read(bucket, "ann", "docs/b.md")
    assert not bucket.changes("listing").access
    store.put("docs/.access.yaml", "allow: everybody\n")
    listed(bucket)
    assert not may_read(bucket, "bob", "docs/b.md") and "docs/.access.yaml" in bucket.readers().alarms[0]
    store.delete("docs/.access.yaml")
    listed(bucket)
    assert not may_read(bucket, "bob", "docs/b.md")  # it may be written again in a moment
    clock.advance(SETTLE_S + 1)
    assert bucket.changes("listing").access and may_read(bucket, "bob", "docs/b.md")


@pytest.mark.requirement("A8", "I12")
def test_a_new_folder_waits_for_its_access_file(store: Store, bucket: Bucket, clock: ManualClock) -> None:
    look(bucket)
    store.put("new/page.md")  # the tool that copies is not done yet
    listed(bucket)
    told = bucket.readers()
    assert "audience:wiki/new" in told.undecided and not may_read(bucket, "ann", "new/page.md")
    store.put("new/.access.yaml", "allow: [user:bob]\n")
    clock.advance(SETTLE_S + 1)
    told = bucket.readers()  # no listing met the file yet, and all the same it counts
    assert "audience:wiki/new" not in told.undecided
    assert may_read(bucket, "bob", "new/page.md") and not may_read(bucket, "ann", "new/page.md")


@pytest.mark.requirement("A8")
def test_the_life_of_a_group(store: Store, bucket: Bucket) -> None:
    store.put(".access.yaml", "allow: [group:eng]\n")
    look(bucket)
    assert may_read(bucket, "ann", "a.md") and not may_read(bucket, "bob", "a.md")
    store.put("groups.yaml", "users: [ann, bob]\ngroups: {eng: [bob]}\n")
    listed(bucket)
    assert bucket.changes("listing").access
    assert may_read(bucket, "bob", "a.md") and not may_read(bucket, "ann", "a.md")
    store.delete("groups.yaml")
    listed(bucket)
    assert not may_read(bucket, "bob", "a.md") and "missing" in bucket.readers().alarms[0]


@pytest.mark.requirement("A1", "A8")
def test_one_folder_of_a_bucket(store: Store) -> None:
    store.put("team/docs/groups.yaml", GROUPS)
    store.put("team/docs/in/x.md")
    store.put("team/docs-old/y.md")  # begins alike and is another folder
    bucket = store.source(prefix="team/docs")
    assert listed(bucket).keys() == {"team/docs/in/x.md"}
    assert fetched(bucket, "team/docs/in/x.md").document.path == "in/x.md"
    assert isinstance(bucket.fetch(ref("a.md")), Absent)


@pytest.mark.requirement("A8", "I12", "I8")
def test_rights_of_our_own_account(store: Store) -> None:
    """Without a right to an object it is hidden; with the wrong key nothing is concluded at all."""
    store.server.add_account("reader", "reader-secret-0123456789")
    principal = {"AWS": ["reader"]}
    allowed = [
        {
            "Effect": "Allow",
            "Principal": principal,
            "Action": "s3:ListBucket",
            "Resource": f"arn:aws:s3:::{store.name}",
        },
        {
            "Effect": "Allow",
            "Principal": principal,
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{store.name}/*",
        },
    ]
    denied = {**allowed[1], "Effect": "Deny", "Resource": f"arn:aws:s3:::{store.name}/secret/*"}
    keys: dict[str, Any] = {"access_key": "reader", "secret_key": "reader-secret-0123456789"}
    store.put("secret/x.md")
    bucket = store.source(**keys)
    with pytest.raises(SourceUnavailable, match="s3:ListBucket"):
        bucket.listing(None)
    policy = {"Version": "2012-10-17", "Statement": [*allowed, denied]}
    store.client.put_bucket_policy(Bucket=store.name, Policy=json.dumps(policy))
    assert listed(bucket).keys() == {"a.md", "secret/x.md"}
    fetched(bucket, "a.md")
    answer = bucket.fetch(ref("secret/x.md"))
    assert isinstance(answer, Unreadable) and "AccessDenied" in answer.reason
    wrong = store.source(**keys | {"secret_key": "another-secret-0123456789"})
    for ask in (lambda: wrong.fetch(ref("a.md")), lambda: wrong.listing(None)):
        with pytest.raises(SourceUnavailable, match="refused"):
            ask()
    assert all(f.good for f in store.source().check()), store.source().check()
    assert not all(f.good for f in wrong.check())


@pytest.mark.requirement("I8", "F02")
def test_a_store_or_bucket_that_is_away_deletes_nothing(store: Store, server: s3.S3Server) -> None:
    bucket = store.source(timeout_s=1.0)
    listed(bucket)
    none = store.source(bucket="nobodys-bucket")
    with pytest.raises(ConfigError, match=r"sources\.bucket"):
        none.fetch(ref("a.md"))
    assert any("sources.bucket" in f.what for f in none.check())
    lost = Store(server)
    gone = lost.source()
    gone.start()
    lost.client.delete_bucket(Bucket=lost.name)
    with pytest.raises(SourceUnavailable, match="bucket is gone"):
        gone.listing(None)
    server.stop()
    try:
        for ask in (lambda: bucket.fetch(ref("a.md")), lambda: bucket.listing(None), bucket.start):
            refused(ask)
        assert bucket.reach.failures == 3
    finally:
        server.start()
    assert listed(bucket).keys() == {"a.md"}


def refused(ask: Callable[[], object]) -> None:
    """A server that was told to stop may answer once more over a connection that stands."""
    end = time.monotonic() + 10
    while True:
        try:
            ask()
        except SourceUnavailable:
            return
        assert time.monotonic() < end, "a stopped server answers"
        time.sleep(0.05)


@pytest.mark.requirement("A1", "F02")
def test_notifications_name_what_to_look_at(store: Store, bucket: Bucket, hook: Hook) -> None:
    look(bucket)
    hook.told.clear()
    store.put("odd/a b+c.md")
    store.put("odd/.access.yaml", "allow: [user:bob]\n")
    store.put("odd/picture.svg", b"x")
    store.delete("a.md")
    deadline = time.monotonic() + 10
    named: list[str] = []
    while time.monotonic() < deadline and len(set(named)) < 3:
        named = [r.id for payload in list(hook.told) for r in bucket.event_refs(payload)]
        time.sleep(0.05)
    assert set(named) == {"odd/a b+c.md", "odd/.access.yaml", "a.md"}, hook.told
    assert isinstance(bucket.fetch(ref("odd/.access.yaml")), Absent)
    assert bucket.changes("listing").access


@pytest.mark.requirement("A1", "A8", "F02", "I9")
def test_an_owner_of_a_bucket(store: Store) -> None:
    """What reaches the log: documents, rights, deletions, a notification, and the same after a restart."""
    store.put("docs/b.md", "# B\n")
    store.put("docs/.access.yaml", "allow: [group:eng]\n")
    owned = OwnedSystem(store.source, "wiki", Rhythm(1.0, 30.0, 86_400.0), walk_s=30.0)
    owned.start()
    assert owned.live().keys() == {"a.md", "docs/b.md"}
    assert owned.may_read("ann", "docs/b.md") and not owned.may_read("bob", "docs/b.md")

    store.put("docs/.access.yaml", "allow: [user:bob]\n")
    store.put("docs/c.md", "# C\n")
    store.delete("a.md")
    owned.look(35.0)
    assert owned.live().keys() == {"docs/b.md", "docs/c.md"}
    assert owned.may_read("bob", "docs/c.md") and not owned.may_read("ann", "docs/b.md")
    events = owned.log.events()

    owned.engine.close()
    owned.start()
    owned.look(70.0)
    assert owned.log.events() == events  # nothing happened, nothing is said

    store.put("new/d.md", "# D\n")
    owned.connector.notify(ref("new/d.md"))
    owned.look(1.0)
    assert "new/d.md" in owned.live() and not owned.may_read("ann", "new/d.md")  # its access file may be on its way
    owned.look(60.0)
    assert owned.may_read("ann", "new/d.md")
    store.delete("docs/c.md")
    owned.connector.notify(ref("docs/c.md"))
    owned.look(5.0)
    assert owned.live().keys() == {"docs/b.md", "new/d.md"}
    owned.engine.close()
