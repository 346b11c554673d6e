"""An encoder that cannot be the generation's is no document's fault."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from consumers.encoder_lane import EmbedTask, EncoderLane
from pipeline.clock import SystemClock
from pipeline.errors import ConfigError, Crash, DocumentError, EncoderUnavailable


@pytest.mark.requirement("I8", "F18")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigError("encoder.dimension", "another model", "Correct it."), Crash),
        (EncoderUnavailable("away"), EncoderUnavailable),
        (DocumentError("text 0"), DocumentError),
    ],
)
def test_what_a_failed_slice_means(error: Exception, kind: type[Exception]) -> None:
    calls: list[int] = []

    def embed_documents(texts: list[str]) -> object:
        calls.append(len(texts))
        raise error

    embedder = SimpleNamespace(embed_documents=embed_documents, backend=SimpleNamespace(name="endpoint"))
    lane = EncoderLane(cast(Any, embedder), lambda task: None, SystemClock(), slice_ms=100, first=4)
    tasks = [EmbedTask(cast(Any, None), live=True) for _ in range(2)]
    lane._embed([(task, cast(Any, SimpleNamespace(embed_text="x"))) for task in tasks])
    assert [type(task.error) for task in tasks] == [kind, kind]
    assert calls == ([2, 1, 1] if kind is DocumentError else [2])  # only a document is looked for
