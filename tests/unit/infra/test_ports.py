"""Ports: free ones, remembered while they stay free."""

from __future__ import annotations

import socket
import threading

from infra import ports


def _listen(port: int = 0) -> socket.socket:
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.bind((ports.LOOPBACK, port))
    server.listen()
    return server


def test_a_listening_port_is_not_free() -> None:
    with _listen() as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_a_port_on_another_interface_is_not_free() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("0.0.0.0", 0))
        server.listen()
        assert not ports.is_free(server.getsockname()[1])


def test_chosen_ports_are_outside_the_range_of_outgoing_connections() -> None:
    for _ in range(50):
        assert ports.FIRST <= ports.free_port() < ports.LAST


def test_remembered_ports_are_kept_while_they_are_free() -> None:
    first = ports.choose({"kafka": 1, "raft": 2}, {})
    assert ports.choose({"kafka": 1, "raft": 2}, first) == first


def test_a_taken_port_is_replaced_and_the_others_stay() -> None:
    first = ports.choose({"kafka": 1, "controller": 1}, {})
    with _listen(first["kafka"]):
        second = ports.choose({"kafka": 1, "controller": 1}, first)
    assert second["kafka"] != first["kafka"]
    assert second["controller"] == first["controller"]


def test_the_second_port_of_a_pair_counts_too() -> None:
    first = ports.choose({"raft": 2}, {})
    with _listen(first["raft"] + 1):
        assert ports.choose({"raft": 2}, first)["raft"] != first["raft"]


def test_no_port_is_given_twice() -> None:
    clash = {"a": 25_000, "b": 25_000, "c": 24_999}
    chosen = ports.choose({"a": 1, "b": 1, "c": 2}, clash)
    used = [chosen["a"], chosen["b"], chosen["c"], chosen["c"] + 1]
    assert len(set(used)) == 4


def test_ports_of_other_services_are_avoided() -> None:
    free = ports.free_port()
    assert ports.choose({"a": 1}, {"a": free}, taken=[free])["a"] != free


def test_a_port_that_is_let_go_in_a_moment_becomes_free() -> None:
    server = _listen()
    port = server.getsockname()[1]
    assert not ports.becomes_free(port, seconds=0.05)
    timer = threading.Timer(0.1, server.close)
    timer.start()
    assert ports.becomes_free(port, seconds=10)
    timer.join()
