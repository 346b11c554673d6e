"""Other forms of a model's weights, made once per weights and cached: float ones, and OpenVINO's.

    model.onnx (8 bits) ──dequantise──▶ SHA256-float/model.safetensors ─┐
    model.safetensors ──────────────────────────────────────────────────┴─convert──▶ SHA256-openvino/model.xml

The folders are named by the sha256 of the pinned file, so encoders of one dimension never share one. The work runs in
a process of its own (conversion needs torch): the caller stays small, and every later start reads the cached files
alone. ``python -m pipeline.embed.convert FORM FOLDER TARGET`` is that process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from pipeline.errors import ConfigError
from pipeline.settings import Settings
from schemas.generation import EncoderSpec

MODEL = "model.xml"
FLOATS = "model.safetensors"
TIMEOUT_S = 600

Form = Literal["openvino", "float"]
_MARKS: dict[Form, str] = {"openvino": MODEL, "float": FLOATS}


def converted_model(folder: Path, spec: EncoderSpec, settings: Settings) -> Path:
    """Path of OpenVINO's form of the model in ``folder``, made now if the cache lacks it; fp32 and bf16 read the same.

    Raises ConfigError when the conversion fails.
    """
    target = settings.cache_dir / "models" / f"{spec.weights_sha256}-openvino"
    if not (target / MODEL).is_file():
        _make("openvino", float_model(folder, spec, settings), target)
    return target / MODEL


def float_model(folder: Path, spec: EncoderSpec, settings: Settings) -> Path:
    """Folder whose model.safetensors torch can read: the given one, or its de-quantised form from the cache.

    Raises ConfigError when that cannot be made.
    """
    if spec.weights_file == FLOATS:
        return folder
    target = settings.cache_dir / "models" / f"{spec.weights_sha256}-float"
    if not (target / FLOATS).is_file():
        _make("float", folder, target)
    return target


def _make(form: Form, folder: Path, target: Path) -> None:
    """Written beside its place and renamed when whole: neither a crash nor a second process leaves half."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name[:16]}-", dir=target.parent))
    try:
        _run(form, folder, draft)
        _place(draft, target, _MARKS[form])
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _run(form: Form, folder: Path, draft: Path) -> None:
    root = str(Path(__file__).resolve().parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "pipeline.embed.convert", form, str(folder), str(draft)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            "encoder.backend", f"converting the model took over {TIMEOUT_S} s", "Choose torch-fp32."
        ) from error
    if done.returncode != 0 or not (draft / _MARKS[form]).is_file():
        lines = done.stderr.strip().splitlines()
        to = "for OpenVINO" if form == "openvino" else "to float weights"
        raise ConfigError(
            "encoder.backend",
            f"converting the model {to} failed: {lines[-1] if lines else 'no message'}",
            "Install the extra 'encoder' (torch, openvino, onnx), or choose torch-fp32.",
        )


def _place(draft: Path, target: Path, mark: str) -> None:
    if target.exists() and not (target / mark).is_file():
        shutil.rmtree(target)
    try:
        draft.rename(target)
    except OSError:
        if not (target / mark).is_file():  # else another process was first; its result is the same
            raise


def convert(folder: Path, target: Path) -> None:
    """Write ``model.xml`` and ``model.bin`` (fp32, dynamic batch and length) into ``target``."""
    import openvino
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(str(folder), local_files_only=True, dtype=torch.float32).eval()
    example = {
        "input_ids": torch.ones((2, 16), dtype=torch.int64),
        "attention_mask": torch.ones((2, 16), dtype=torch.int64),
    }
    with torch.inference_mode():
        converted = openvino.convert_model(
            model,
            example_input=example,
            input=[
                ("input_ids", [-1, -1], openvino.Type.i64),
                ("attention_mask", [-1, -1], openvino.Type.i64),
            ],
        )
    openvino.save_model(converted, str(target / MODEL), compress_to_fp16=False)


def main(arguments: list[str]) -> None:
    """The process that makes one form."""
    from pipeline.embed.dequantise import dequantise

    form, folder, target = arguments
    (convert if form == "openvino" else dequantise)(Path(folder), Path(target))


if __name__ == "__main__":
    main(sys.argv[1:])
