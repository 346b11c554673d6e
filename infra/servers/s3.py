"""A real S3-compatible server for tests: Versity's gateway over a folder, built from its Go module."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from pathlib import Path

import httpx

from infra.errors import ObtainError, StartError
from infra.files import exclusive, require_space
from infra.obtain.tools import obtain_go, run
from infra.ports import LOOPBACK, free_port
from infra.process import Managed
from infra.progress import Reporter

VERSION = "1.8.0"
MODULE = "github.com/versity/versitygw"
MODULE_SUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
STEP = f"versitygw {VERSION}"
BUILD_SECONDS = 1800.0
START_SECONDS = 20.0


def program(cache: Path) -> Path:
    """Where the server is kept."""
    return cache / "bin" / f"versitygw-{VERSION}"


def available(cache: Path) -> bool:
    """Whether the server is there, or can be built with a compiler that is."""
    return program(cache).exists() or shutil.which("go") is not None


def obtain(cache: Path, report: Reporter) -> Path:
    """Path of the server; built where it is not there yet, about 2 minutes of CPU time. Raises ObtainError."""
    target = program(cache)
    with exclusive(cache / "locks" / "versitygw.lock", STEP):
        if target.exists():
            return target
        require_space(cache, 1500, f"building {STEP}", "HEADWATER_CACHE_DIR")
        go = obtain_go(cache, report)
        report.step(STEP, "building from source")
        work = target.parent / ".build-versitygw"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        env = {**os.environ, "GOBIN": str(work), "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        run([go, "install", f"{MODULE}/cmd/versitygw@v{VERSION}"], env=env, timeout=BUILD_SECONDS, what=STEP)
        built = work / "versitygw"
        if f"mod\t{MODULE}\tv{VERSION}\t{MODULE_SUM}\n".encode() not in built.read_bytes():
            raise ObtainError(f"{STEP} built by Go does not carry the pinned module checksum.", "Report this.")
        os.replace(built, target)
        shutil.rmtree(work)
        report.finish(STEP, "ready")
        return target


class S3Server:
    """One server with its data below a folder of its own, on the loopback interface."""

    def __init__(self, server: Path, folder: Path, *, webhook: str | None = None) -> None:
        """``webhook``: an address that event notifications are posted to."""
        self._server, self._folder, self._webhook = server, folder, webhook
        self._process = Managed("s3", folder)
        self._port = free_port()
        self.access_key, self.secret_key = "headwater", secrets.token_hex(16)

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Start, and wait until it answers. Raises StartError."""
        for name in ("data", "versions", "attributes", "accounts"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        argv = [str(self._server), "--port", f"{LOOPBACK}:{self._port}", "--iam-dir", str(self._folder / "accounts")]
        argv += ["--event-webhook-url", self._webhook] if self._webhook else []
        argv += ["posix", "--versioning-dir", str(self._folder / "versions")]
        argv += ["--sidecar", str(self._folder / "attributes"), str(self._folder / "data")]
        keys = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        self._process.start(argv, {**os.environ, **keys})
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            if not self._process.alive() or time.monotonic() > end:
                raise StartError(f"The S3 server did not start:\n{self._process.log_tail()}\n", "Read its log above.")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop; the data stay."""
        self._process.stop()

    def add_account(self, access_key: str, secret_key: str) -> None:
        """An account that may do nothing until a bucket lets it. Raises ObtainError."""
        argv = [str(self._server), "admin", "--access", self.access_key, "--secret", self.secret_key]
        argv += ["--endpoint-url", self.endpoint, "create-user"]
        argv += ["--access", access_key, "--secret", secret_key, "--role", "user"]
        run(argv, timeout=30.0, what="creating an account")

    def _answers(self) -> bool:
        try:
            return httpx.get(self.endpoint, timeout=1.0).status_code in (200, 403)
        except httpx.HTTPError:
            return False
