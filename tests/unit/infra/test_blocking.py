"""The guard of this folder: a unit test cannot reach a service."""

from __future__ import annotations

import socket

import pytest


def test_connections_are_refused_here() -> None:
    with socket.socket() as plain, pytest.raises(AssertionError, match="move it to tests/integration"):
        plain.connect(("127.0.0.1", 9))


def test_this_folder_is_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("unit") is not None
