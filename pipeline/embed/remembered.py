"""Trials remembered per machine: the same encoder on the same processor and libraries needs no second one."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import uuid
from pathlib import Path

from pydantic import ValidationError

from pipeline.embed.trial import choose_backend, reference_sha256
from pipeline.settings import Settings
from schemas.generation import BackendChoice, EncoderSpec

LIBRARIES = ("torch", "openvino", "sentence-transformers", "transformers", "tokenizers")


def machine_key(spec: EncoderSpec, settings: Settings) -> str:
    """Hash of everything that the outcome of a trial depends on."""
    parts = [spec.model_dump_json(), reference_sha256(), settings.encoder.backend, str(settings.encoder.threads)]
    parts += [_processor(), platform.python_version(), *(_version(name) for name in LIBRARIES)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def remembered_backend(spec: EncoderSpec, settings: Settings) -> BackendChoice:
    """The outcome of this machine's earlier trial, else of one made now and kept under ``cache_dir/models``."""
    file = settings.cache_dir / "models" / f"trial-{machine_key(spec, settings)}.json"
    try:
        return BackendChoice.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        choice = choose_backend(spec, settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{uuid.uuid4().hex}.part")
    partial.write_text(choice.model_dump_json(), encoding="utf-8")
    os.replace(partial, file)
    return choice


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
