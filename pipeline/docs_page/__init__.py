"""``/docs``: Swagger UI on an app's own OpenAPI document, from files of a package: no other server is asked."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse

FOLDER = Path(__file__).parent
PACKAGE = "fastapi_offline"
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def install(app: Starlette) -> None:
    """Add the page, its files and ``/static/icon.svg`` to an app that serves ``/openapi.json``.

    Before a mount of ``/static``. Raises ModuleNotFoundError without the package.
    """
    from starlette.responses import FileResponse
    from starlette.staticfiles import StaticFiles

    found = find_spec(PACKAGE)  # its code is not run
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"the page of the API needs {PACKAGE}: pip install fastapi-offline", name=PACKAGE)

    def file(name: str, path: str) -> None:
        async def sent(request: Request) -> FileResponse:
            return FileResponse(FOLDER / name, headers={"Content-Security-Policy": POLICY})

        app.add_route(path, sent, methods=["GET"], include_in_schema=False)

    file("docs.html", "/docs")
    for name in ("docs.css", "docs.js"):
        file(name, f"/static/docs/{name}")
    file("icon.svg", "/static/icon.svg")
    app.mount("/static/swagger", StaticFiles(directory=Path(found.origin).parent / "static"), name="swagger")
