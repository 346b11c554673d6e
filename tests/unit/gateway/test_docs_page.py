"""The page of the gateway's API asks no other server."""

from __future__ import annotations

import re

from tests.unit.gateway.conftest import Door


def test_the_page_has_all_its_files_here_and_may_load_no_others(door: Door) -> None:
    page = door.client.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert {"docs.js", "docs.css", "swagger-ui-bundle.js", "icon.svg"} <= {name.rpartition("/")[2] for name in named}
    for address in named:
        assert address.startswith("/") and not address.startswith("//"), address
        assert door.client.get(address).status_code == 200, address
    assert "<script>" not in page.text and "style=" not in page.text, "the policy refuses what stands inline"
    assert page.headers["content-security-policy"].startswith("default-src 'self'")


def test_the_page_is_no_part_of_the_document(door: Door) -> None:
    spec = door.client.get("/openapi.json").json()
    assert "/v1/changes" in spec["paths"] and "/docs" not in spec["paths"]


def test_nothing_beside_the_page_is_served(door: Door) -> None:
    for address in ("/static/docs/__init__.py", "/static/swagger/%2e%2e/__init__.py", "/redoc"):
        assert door.client.get(address).status_code == 404, address
