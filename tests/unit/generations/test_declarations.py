"""Declaration files: every template can be read back as what it stands for; mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.chunk.presets import preset
from pipeline.embed.catalogue import known_encoders
from pipeline.errors import ConfigError
from pipeline.generations import Declaration
from pipeline.operate.declarations import ENDPOINT, differences, load, names, template


def read(tmp_path: Path, text: str) -> Declaration:
    file = tmp_path / "generation.toml"
    file.write_text(text, encoding="utf-8")
    return load(file)


@pytest.mark.requirement("A10")
@pytest.mark.parametrize("name", names())
def test_a_template_declares_what_it_is_named_for(tmp_path: Path, name: str) -> None:
    text = template(name)
    found = read(tmp_path, text)
    if name == ENDPOINT:
        assert (found.encoder.provider, found.encoder.endpoint, found.encoder.weights_sha256) == ("openai", "corp", "")
    else:
        known = known_encoders()[name]
        assert (found.encoder, found.chunking) == (known.spec, known.chunking)
    values = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    assert values and all("  # " in line for line in values)


@pytest.mark.requirement("A10")
def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Declaration()


@pytest.mark.requirement("A4")
def test_a_chunking_may_be_named_or_differ_by_type(tmp_path: Path) -> None:
    assert read(tmp_path, 'chunking = "128/512"').chunking == preset("128/512")
    found = read(tmp_path, '[chunking]\nby_type = { "application/pdf" = "recursive", "text/" = "semantic" }\n').chunking
    assert [found.for_type(t) for t in ("application/pdf", "text/html", "message/rfc822")] == [
        "recursive", "semantic", "hierarchical",
    ]  # fmt: skip
    commented = (
        template("minilm").replace("# by_type", "by_type").replace("# semantic_percentile", "semantic_percentile")
    )
    assert read(tmp_path, commented).chunking.semantic_percentile == 20


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[encoder]\ndimensions = 3\n", "declaration.encoder.dimensions"),
        ("[encoder]\nprovider = 'tei'\n", "declaration.encoder"),
        ("[chunking]\nchild_tokens = 10\n", "declaration.chunking.child_tokens"),
        ("[chunking]\nrevision = 1\n", "declaration.chunking.revision"),
        ("chunking = '1/2'\n", "chunking"),
        ("[encoder\n", "generation.toml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert named in caught.value.field and caught.value.remedy


def test_a_missing_file_and_an_unknown_template_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="template minilm"):
        load(tmp_path / "nothing.toml")
    with pytest.raises(ConfigError, match="minilm"):
        template("gpt")


@pytest.mark.requirement("A10")
def test_differences_from_what_serves_are_listed() -> None:
    serves = Declaration()
    wanted = serves.model_copy(update={"encoder": serves.encoder.model_copy(update={"pooling": "cls"})})
    assert differences(wanted, serves.index, serves.encoder, serves.chunking) == ["encoder.pooling: mean -> cls"]
    assert differences(serves, serves.index, serves.encoder, serves.chunking) == []
