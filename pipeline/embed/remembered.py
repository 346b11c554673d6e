"""Trials remembered per machine: the same encoder on the same processor and libraries needs no second one.

Trials and reference vectors are made in a process of their own: they load runtimes that a long-lived caller must not
keep. ``python -m pipeline.embed.remembered`` is that process.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import uuid
from pathlib import Path

from pydantic import ValidationError

from pipeline.embed.encoder import load_encoder
from pipeline.embed.trial import reference_sha256
from pipeline.errors import ConfigError
from pipeline.settings import EncoderSettings, Settings
from schemas.generation import BackendChoice, EncoderSpec, ReferenceVectors

REFUSED = 3
LIBRARIES = ("torch", "openvino", "transformers", "tokenizers")


def machine_key(spec: EncoderSpec, settings: Settings) -> str:
    """Hash of everything that the outcome of a trial depends on."""
    parts = [spec.model_dump_json(), reference_sha256(), settings.encoder.backend, str(settings.encoder.threads)]
    parts += [_processor(), platform.python_version(), *(_version(name) for name in LIBRARIES)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def remembered_backend(spec: EncoderSpec, settings: Settings) -> BackendChoice:
    """The outcome of this machine's earlier trial, else of one made now and kept under ``cache_dir/models``.

    An endpoint is asked anew each time. Raises ConfigError, and EncoderUnavailable when an endpoint does not answer.
    """
    if spec.provider != "local":
        from pipeline.embed.endpoint import try_endpoint

        return try_endpoint(spec, settings)
    file = settings.cache_dir / "models" / f"trial-{machine_key(spec, settings)}.json"
    try:
        return BackendChoice.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        choice = tried_apart(spec, settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{uuid.uuid4().hex}.part")
    partial.write_text(choice.model_dump_json(), encoding="utf-8")
    os.replace(partial, file)
    return choice


def tried_apart(spec: EncoderSpec, settings: Settings) -> BackendChoice:
    """The trial in a process of its own. Raises ConfigError with what the trial said."""
    return BackendChoice.model_validate_json(_apart("choose", spec, settings, None))


def vectors_apart(spec: EncoderSpec, backend: BackendChoice, settings: Settings) -> ReferenceVectors:
    """The reference vectors of a backend, made in a process of its own. Raises ConfigError with what it said."""
    return ReferenceVectors.model_validate_json(_apart("vectors", spec, settings, backend))


def _apart(task: str, spec: EncoderSpec, settings: Settings, backend: BackendChoice | None) -> str:
    asked = {
        "task": task,
        "spec": spec.model_dump(mode="json"),
        "backend": backend.model_dump(mode="json") if backend else None,
        "encoder": settings.encoder.model_dump(mode="json"),
        "cache_dir": str(settings.cache_dir),
    }
    command = [sys.executable, "-m", "pipeline.embed.remembered"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    answer = done.stdout.strip().splitlines()
    if done.returncode == 0 and answer:
        return answer[-1]
    said = answer[-1] if done.returncode == REFUSED and answer else done.stderr.strip()[-500:]
    raise ConfigError("encoder.backend", f"the trial failed: {said}", "Correct the encoder's settings.")


def main() -> int:
    """The other side of ``_apart``."""
    from pipeline.embed.reference import vectors_of
    from pipeline.embed.trial import choose_backend

    asked = json.load(sys.stdin)
    settings = Settings(cache_dir=asked["cache_dir"], encoder=EncoderSettings.model_validate(asked["encoder"]))
    spec = EncoderSpec.model_validate(asked["spec"])
    made: BackendChoice | ReferenceVectors
    try:
        if asked["task"] == "choose":
            made = choose_backend(spec, settings)
        else:
            made = vectors_of(load_encoder(spec, BackendChoice.model_validate(asked["backend"]), settings), settings)
    except ConfigError as error:
        print(str(error).replace("\n", " "))
        return REFUSED
    print(made.model_dump_json())
    return 0


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    lines = [line for line in text.splitlines() if line.split("\t")[0].strip() in wanted]
    return "\n".join(sorted(set(lines))) + f"\n{os.cpu_count()}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    sys.exit(main())
