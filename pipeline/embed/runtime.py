"""The runtimes that turn token ids into hidden states: torch and OpenVINO, each in fp32 and bf16."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.errors import EncoderUnavailable

Ids = npt.NDArray[np.int64]  # shape (batch, tokens)
States = npt.NDArray[np.float32]  # shape (batch, tokens, dimension)


BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def lacks(name: str) -> str | None:
    """Why a backend is out of the question on this processor; None where it may be tried.

    Without the instructions bf16 is emulated: right, but up to thirty times slower than fp32.
    """
    if not name.endswith("bf16"):
        return None
    try:
        words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return None
    return None if words & BF16_FLAGS else "the processor has no bf16 instructions"


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
        from transformers.utils.logging import disable_progress_bar, set_verbosity_error

        disable_progress_bar()  # type: ignore[no-untyped-call]
        set_verbosity_error()  # type: ignore[no-untyped-call]  # an unused pooling layer would be reported at length
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


_FIRST = threading.Lock()


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
        # The binding's first look at an array of a process must not be made by two threads: they would wait for each
        # other for ever, and hold the interpreter's lock.
        with _FIRST:
            one: Ids = np.ones((1, 1), dtype=np.int64)
            self.states(one, one)

    def states(self, ids: Ids, mask: Ids) -> States:
        """Shape (batch, tokens, dimension)."""
        try:
            # all of it in the runtime's own threads, so that their priority alone counts
            self._request.start_async({"input_ids": ids, "attention_mask": mask})
            self._request.wait()
            return np.array(self._request.get_output_tensor(0).data, dtype=np.float32)
        except RuntimeError as error:
            raise EncoderUnavailable(f"openvino: {error}") from error
