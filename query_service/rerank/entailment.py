"""A cross-encoder with three classes: whether a premise entails a hypothesis, says nothing of it, or contradicts it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.errors import ConfigError

CLASSES = ("entailment", "neutral", "contradiction")
BATCH = 16


class EntailmentModel:
    """Probabilities in the order of ``CLASSES``, whatever order the model has; calls are served one after another."""

    def __init__(self, folder: Path, *, max_tokens: int = 512, device: str | None = None) -> None:
        """Loads the model. Raises ConfigError when the folder is none, or its labels are not the three classes."""
        try:
            import torch
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise ConfigError(
                "support.backend", f"{error.name} is not installed", "Install the extra 'rerankers', or set 'measures'."
            ) from error
        if not folder.is_dir():
            raise ConfigError("support.weights", f"{folder} is no folder", "Name the folder of a downloaded model.")
        self._lock = threading.Lock()
        try:
            self._model = CrossEncoder(
                str(folder),
                max_length=max_tokens,
                local_files_only=True,
                activation_fn=torch.nn.Softmax(dim=-1),
                device=device,
            )
            labels = {int(i): str(name).lower() for i, name in self._model.model.config.id2label.items()}
        except Exception as error:  # of several libraries; their texts may hold addresses
            raise ConfigError(
                "support.weights",
                f"{folder} is no cross-encoder that loads: {type(error).__name__}",
                "Name a complete folder of an NLI cross-encoder.",
            ) from error
        found = {kind: [i for i, name in labels.items() if name.startswith(kind[:6])] for kind in CLASSES}
        if len(labels) != len(CLASSES) or any(len(places) != 1 for places in found.values()):
            raise ConfigError(
                "support.weights",
                f"the model's labels are {sorted(labels.values())}",
                f"Use a model whose config.json names the labels {', '.join(CLASSES)} in id2label.",
            )
        self._order = [found[kind][0] for kind in CLASSES]

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float64]:
        """Of (premise, hypothesis) pairs, shape (n, 3). Raises what torch raises."""
        if not pairs:
            return np.zeros((0, len(CLASSES)))
        with self._lock:
            found = self._model.predict(list(pairs), batch_size=BATCH, show_progress_bar=False)
        return np.asarray(found, dtype=np.float64)[:, self._order]
