"""Kafka's jars: from the cache, the vendor's archive, or by Maven coordinates; each way checked file by file."""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from pathlib import Path

from infra import pins
from infra.errors import InfraError, ObtainError
from infra.files import disk_errors, exclusive, require_space, sha256
from infra.obtain.download import fetch_checked
from infra.obtain.tools import pip_folder, run
from infra.progress import Reporter

STEP = f"kafka {pins.KAFKA_VERSION}"
_COORDINATES = (
    f"org.apache.kafka:kafka_{pins.KAFKA_SCALA}:{pins.KAFKA_VERSION}",
    f"org.slf4j:slf4j-simple:{pins.SLF4J_VERSION}",
)
_JGO = """
import sys
from pathlib import Path
import jgo
jgo.build(sys.argv[1], cache_dir=Path(sys.argv[2]))
"""


def folder(cache: Path) -> Path:
    """Where the jars are kept."""
    return cache / f"kafka-{pins.KAFKA_VERSION}" / "libs"


def present(cache: Path) -> bool:
    """Whether every jar is there. Whole or absent: the folder gets its name only after the check."""
    names = {p.name for p in folder(cache).glob("*.jar")}
    return _main_jar() in names and names >= _required(names)


def obtain(cache: Path, report: Reporter) -> Path:
    """Folder of the checked jars. Raises InfraError naming each way that was tried."""
    target = folder(cache)
    with exclusive(cache / "locks" / "kafka.lock", STEP):
        if present(cache):
            return target
        shutil.rmtree(target, ignore_errors=True)
        require_space(cache, 400, STEP, "HEADWATER_CACHE_DIR")
        partial = target.with_name(".libs.partial")
        failures: list[str] = []
        for way in (_from_archive, _from_maven, _from_jgo):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            try:
                with disk_errors(partial):
                    way(cache, partial, report)
                partial.rename(target)
            except ObtainError as error:
                failures.append(error.problem)
                continue
            report.finish(STEP, "ready")
            return target
    raise InfraError(
        f"Kafka {pins.KAFKA_VERSION} could not be obtained.\n  " + "\n  ".join(failures),
        "Connect to the internet or a Maven mirror, or set HEADWATER_KAFKA__BOOTSTRAP to a running Kafka.",
    )


def _main_jar() -> str:
    return f"kafka_{pins.KAFKA_SCALA}-{pins.KAFKA_VERSION}.jar"


def _required(names: set[str]) -> set[str]:
    # The vendor's archive logs by log4j, the coordinates by slf4j-simple; each brings the rest of the list.
    return set() if any(n.startswith("log4j-slf4j-impl") for n in names) else set(pins.kafka_jars())


def _from_archive(cache: Path, into: Path, report: Reporter) -> None:
    archive = cache / "downloads" / Path(pins.KAFKA_ARCHIVE).name
    if not archive.exists():
        report.step(STEP, "asking the vendor")
        fetch_checked(pins.KAFKA_ARCHIVE, f"{pins.KAFKA_ARCHIVE}.sha512", "sha512", archive, report)
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name)
            if member.isfile() and name.parent.name == "libs" and name.suffix == ".jar":
                source = tar.extractfile(member)
                assert source is not None
                with source, (into / name.name).open("wb") as out:
                    shutil.copyfileobj(source, out)
    if not (into / _main_jar()).exists():
        raise ObtainError(f"{archive.name} holds no {_main_jar()}.", "Delete it and try again.")
    archive.unlink()


def _from_maven(cache: Path, into: Path, report: Reporter) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise ObtainError("Maven is not installed.", "")
    report.step(STEP, "resolving by Maven")
    pom = into / "pom.xml"
    pom.write_text(_pom(), encoding="utf-8")
    argv = [mvn, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    run([*argv, f"-DoutputDirectory={into}"], timeout=600, what="Maven", cwd=into)
    pom.unlink()
    _check(into)


def _from_jgo(cache: Path, into: Path, report: Reporter) -> None:
    report.step(STEP, "resolving by jgo")
    env = dict(os.environ)
    env["PYTHONPATH"] = str(pip_folder(pins.JGO_PACKAGE, cache))
    work = into / "jgo"
    run([sys.executable, "-c", _JGO, "+".join(_COORDINATES), str(work)], env=env, timeout=600, what="jgo")
    for jar in work.rglob("*.jar"):
        if not (into / jar.name).exists():
            shutil.copyfile(jar, into / jar.name)
    shutil.rmtree(work)
    _check(into)


def _check(found: Path) -> None:
    """Compare each jar with the pinned digest; drop what is not in the list."""
    pinned = pins.kafka_jars()
    for jar in found.iterdir():
        if jar.name not in pinned:
            shutil.rmtree(jar) if jar.is_dir() else jar.unlink()
    missing = sorted(name for name in pinned if not (found / name).exists())
    if missing:
        raise ObtainError(f"jars are missing: {', '.join(missing[:4])}.", "Try again.")
    wrong = sorted(name for name, digest in pinned.items() if sha256(found / name) != digest)
    if wrong:
        raise ObtainError(f"jars do not match their pinned sha256: {', '.join(wrong[:4])}.", "Try again.")


def _pom() -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *coordinate.split(":")
        )
        for coordinate in _COORDINATES
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>headwater</groupId><artifactId>kafka-libs</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
