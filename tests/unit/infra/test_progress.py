"""Progress for logs: stages, not repetitions."""

from __future__ import annotations

import io

from rich.console import Console

from infra.progress import Lines, reporter


def test_a_log_shows_each_stage_once() -> None:
    out = io.StringIO()
    lines = Lines(Console(file=out, width=200))
    for _ in range(3):
        lines.step("weaviate", "asking the vendor")
    for share in (0.1, 0.2, 0.3):
        lines.step("archive", f"{share} MiB", share)
    lines.step("weaviate", "building from source")
    lines.finish("weaviate", "ready")
    said = out.getvalue().splitlines()
    assert said[:3] == ["weaviate: asking the vendor", "archive: 0.1 MiB", "weaviate: building from source"]
    assert said[3].startswith("weaviate: ready (")
    assert len(said) == 4


def test_a_terminal_gets_bars_and_a_file_gets_lines() -> None:
    with reporter(Console(file=io.StringIO())) as plain:
        assert isinstance(plain, Lines)
    out = io.StringIO()
    with reporter(Console(file=out, force_terminal=True, width=120)) as bars:
        bars.step("kafka", "half way", 0.5)
        bars.step("kafka", "nobody knows")
        bars.finish("kafka", "ready")
    assert "kafka" in out.getvalue()
    assert "ready" in out.getvalue()
