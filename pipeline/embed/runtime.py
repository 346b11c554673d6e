"""The runtimes that turn token ids into hidden states: torch and OpenVINO, each in fp32 and bf16."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.errors import EncoderUnavailable

Ids = npt.NDArray[np.int64]  # shape (batch, tokens)
States = npt.NDArray[np.float32]  # shape (batch, tokens, dimension)


class Runtime(Protocol):
    """One loaded model."""

    def states(self, ids: Ids, mask: Ids) -> States:
        """Last hidden states in float32. Raises EncoderUnavailable when the runtime fails."""
        ...


class TorchRuntime:
    """The reference (fp32), or bf16 where the processor has it."""

    def __init__(self, folder: Path, *, bf16: bool, threads: int) -> None:
        import torch
        from transformers import AutoModel
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # type: ignore[no-untyped-call]
        torch.set_num_threads(threads)
        self._torch = torch
        dtype = torch.bfloat16 if bf16 else torch.float32
        model = AutoModel.from_pretrained(str(folder), local_files_only=True, dtype=dtype)
        self._model = model.eval()

    def states(self, ids: Ids, mask: Ids) -> States:
        """Shape (batch, tokens, dimension)."""
        torch = self._torch
        try:
            with torch.inference_mode():
                out = self._model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
                states: States = out.last_hidden_state.float().numpy()
        except RuntimeError as error:
            raise EncoderUnavailable(f"torch: {error}") from error
        return states


class OpenVinoRuntime:
    """A converted model; needs no torch."""

    def __init__(self, model: Path, *, bf16: bool, threads: int) -> None:
        import openvino

        core = openvino.Core()
        config: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
        }
        self._compiled = core.compile_model(core.read_model(str(model)), "CPU", config)
        self._request = self._compiled.create_infer_request()

    def states(self, ids: Ids, mask: Ids) -> States:
        """Shape (batch, tokens, dimension)."""
        try:
            result = self._request.infer({"input_ids": ids, "attention_mask": mask})
        except RuntimeError as error:
            raise EncoderUnavailable(f"openvino: {error}") from error
        return np.asarray(result[0], dtype=np.float32)
