"""Converting a model for OpenVINO, once per weights; fp32 and bf16 read the same cached files.

The conversion needs torch, so it runs in a process of its own: the caller stays small, and every later start reads
the cached files alone. ``python -m pipeline.embed.convert FOLDER TARGET`` is that process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.settings import Settings
from schemas.generation import EncoderSpec

MODEL = "model.xml"
TIMEOUT_S = 600


def converted_model(folder: Path, spec: EncoderSpec, settings: Settings) -> Path:
    """Path of the converted model, made now if the cache lacks it.

    It is written beside its place and renamed when whole, so that neither a crash nor a second process leaves half.
    Raises ConfigError when the conversion fails.
    """
    target = settings.cache_dir / "models" / f"{spec.weights_sha256}-openvino"
    if not (target / MODEL).is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name[:16]}-", dir=target.parent))
        try:
            _run(folder, draft)
            _place(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target / MODEL


def _run(folder: Path, draft: Path) -> None:
    root = str(Path(__file__).resolve().parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "pipeline.embed.convert", str(folder), str(draft)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            "encoder.backend", f"converting the model took over {TIMEOUT_S} s", "Choose torch-fp32."
        ) from error
    if done.returncode != 0 or not (draft / MODEL).is_file():
        lines = done.stderr.strip().splitlines()
        raise ConfigError(
            "encoder.backend",
            f"converting the model for OpenVINO failed: {lines[-1] if lines else 'no message'}",
            "Install torch and openvino (extra 'encoder'), or choose torch-fp32.",
        )


def _place(draft: Path, target: Path) -> None:
    if target.exists() and not (target / MODEL).is_file():
        shutil.rmtree(target)
    try:
        draft.rename(target)
    except OSError:
        if not (target / MODEL).is_file():  # else another process was first; its result is the same
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


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
