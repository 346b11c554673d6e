"""No document reaches the network, others' files or processes; what it would reach otherwise is shown to be there."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import DocumentError
from tests.integration.extract.conftest import MakePool, deed, said

pytestmark = pytest.mark.requirement("A2")


class Listener:
    """Counts who connects to a port of the loopback interface."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.visits = 0
        self._seen = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return
            self.visits += 1
            visitor.close()
            self._seen.release()

    def reached(self) -> bool:
        """Whether it can be reached from here: so that silence means something."""
        before = self.visits
        socket.create_connection(("127.0.0.1", self.port), 5).close()
        assert self._seen.acquire(timeout=5)
        return self.visits == before + 1

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


def test_code_in_a_child_and_below_it_cannot_connect(
    make_pool: MakePool, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    pool = make_pool(armed=True)
    tried = json.loads(said(pool.extract(deed("connect", listener.port), "text/plain")))
    if any("network:" in record.message for record in caplog.records):
        pytest.skip(caplog.text)  # no filter of system calls on this platform: it says so in the log
    assert tried["own"] == dict.fromkeys(("inet", "inet6", "udp", "netlink", "unix"), "PermissionError")
    assert tried["below"].startswith("PermissionError")
    assert tried["pair"] == "ok"
    assert listener.visits == 0
    assert listener.reached()


def documents(port: int) -> list[tuple[str, str]]:
    at = f"http://127.0.0.1:{port}"
    doctype, entity = f'<!DOCTYPE html SYSTEM "{at}/a.dtd">', f'<!DOCTYPE a [<!ENTITY e SYSTEM "{at}/e">]>'
    image = f'<ac:image><ri:url ri:value="{at}/a.png"/></ac:image>'
    return [
        ("text/html", f'<html><link rel=stylesheet href="{at}/a.css"><body><img src="{at}/a.png"><p>x</p></body>'),
        ("text/html", f'{doctype}<html><body><iframe src="{at}/"></iframe>x</body>'),
        ("application/xhtml+xml", f'<?xml version="1.0"?>{doctype}<html><p>x</p></html>'),
        ("application/xml", f"{entity}<a>&e;</a>"),
        ("application/vnd.atlassian.confluence", f"{entity}<p>&e;{image}</p>"),
        ("text/markdown", f"![a]({at}/a.png)\n\n<img src='{at}/b.png'>\n"),
        ("text/x-rst", f".. image:: {at}/a.png\n\n.. include:: {at}/b.rst\n\ntext\n"),
        ("text/x-wiki", f"[[File:{at}/a.png]] {at}/b text\n"),
    ]


def test_documents_that_name_addresses_reach_none(make_pool: MakePool, listener: Listener) -> None:
    pool = make_pool()
    read = 0
    for content_type, body in documents(listener.port):
        try:
            pool.extract(body.encode(), content_type)
            read += 1
        except DocumentError as error:
            assert error.kind not in ("extractor-died", "time-limit", "memory-limit"), error.reason
    assert read >= 4
    assert listener.visits == 0
    assert listener.reached()


def test_files_and_processes_of_others_are_out_of_reach(
    make_pool: MakePool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "old").write_text("as it was")
    pool = make_pool(armed=True)
    tried = json.loads(said(pool.extract(deed("reach_out", str(tmp_path), os.getpid()), "text/plain")))
    if any("files:" in record.message for record in caplog.records):
        pytest.skip(caplog.text)  # a kernel without Landlock: the log says so
    assert tried.pop("own") == tried.pop("null") == "done"
    assert tried.pop("signal") in ("PermissionError", "done")  # older kernels let signals pass
    assert tried == dict.fromkeys(tried, "PermissionError")
    assert [file.name for file in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "as it was"
