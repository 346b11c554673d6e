"""``/docs``: Swagger UI on our own OpenAPI document, from files of an installed package: no other server is asked."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
PACKAGE = "fastapi_offline"


def install(app: FastAPI) -> None:
    """Add the page and its files. Before ``/static``. Raises ModuleNotFoundError without the package."""
    found = find_spec(PACKAGE)  # its code is not run
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"the page of the API needs {PACKAGE}: install headwater[query]", name=PACKAGE)
    app.mount("/static/swagger", StaticFiles(directory=Path(found.origin).parent / "static"), name="swagger")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html")
