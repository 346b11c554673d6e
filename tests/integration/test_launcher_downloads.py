"""Downloads over real HTTP: whole and checked, or absent."""

from __future__ import annotations

import hashlib
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import ports
from infra.errors import DiskFullError, ObtainError
from infra.obtain.download import fetch_checked
from infra.progress import Quiet

CONTENT = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[1]
        if name == "missing":
            self.send_error(404)
            return
        body = CONTENT
        if name.endswith(".sha256"):
            body = (("0" * 64 if name.startswith("wrong") else DIGEST) + f"  {name}\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if name == "cut" else body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer((ports.LOOPBACK, 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://{ports.LOOPBACK}:{server.server_address[1]}"
        server.shutdown()


def _fetch(site: str, name: str, target: Path) -> Path:
    return fetch_checked(f"{site}/{name}", f"{site}/{name}.sha256", "sha256", target, Quiet())


def test_a_whole_download_gets_its_name(site: str, tmp_path: Path) -> None:
    target = tmp_path / "sub" / "archive"
    assert _fetch(site, "good", target).read_bytes() == CONTENT
    assert [p.name for p in target.parent.iterdir()] == ["archive"]


def test_a_download_that_breaks_off_gets_no_name_and_the_next_try_works(site: str, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    with pytest.raises(ObtainError, match=r"cannot be downloaded|ended after"):
        _fetch(site, "cut", target)
    assert not target.exists()
    assert _fetch(site, "good", target).read_bytes() == CONTENT


def test_a_half_file_of_an_earlier_try_is_overwritten(site: str, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    (tmp_path / "archive.partial").write_bytes(b"rubbish" * 1_000_000)
    assert _fetch(site, "good", target).read_bytes() == CONTENT
    assert not (tmp_path / "archive.partial").exists()


def test_a_wrong_checksum_is_refused_and_nothing_is_left(site: str, tmp_path: Path) -> None:
    with pytest.raises(ObtainError, match="does not match its published sha256"):
        _fetch(site, "wrong", tmp_path / "archive")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_an_error_of_this_way_only(site: str, tmp_path: Path) -> None:
    with pytest.raises(ObtainError, match="404"):
        fetch_checked(f"{site}/missing", f"{site}/good.sha256", "sha256", tmp_path / "archive", Quiet())


def test_a_site_that_does_not_answer_is_given_up_quickly(tmp_path: Path) -> None:
    nobody = f"http://{ports.LOOPBACK}:{ports.free_port()}"
    begin = time.monotonic()
    with pytest.raises(ObtainError, match="cannot be downloaded"):
        _fetch(nobody, "good", tmp_path / "archive")
    assert time.monotonic() - begin < 10


def test_a_full_disk_is_said_and_leaves_no_half_file(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.obtain.download._partial", lambda target: Path("/dev/full"))
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # never remove the device
    with pytest.raises(DiskFullError, match="The disk is full"):
        _fetch(site, "good", tmp_path / "archive")
    assert not (tmp_path / "archive").exists()
