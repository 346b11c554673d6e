"""The encoder's own tokens, counted without loading its weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.embed.weights import find_model
from pipeline.errors import ConfigError
from pipeline.settings import Settings
from schemas.generation import EncoderSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def load_tokenizer(folder: Path) -> Tokenizer:
    """The folder's fast tokenizer, neither truncating nor padding."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError("encoder.weights", f"no tokenizer.json in {folder}", "Use a complete model folder.")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class EncoderTokens:
    """ports.TokenCounter over a fast tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def count(self, text: str) -> int:
        """Tokens of ``text`` including special tokens, untruncated."""
        return len(self._tokenizer.encode(text))

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Character span of each token of ``text``, special tokens excluded."""
        spans: list[tuple[int, int]] = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return spans


def token_counter(spec: EncoderSpec, settings: Settings) -> EncoderTokens:
    """The counter of an encoder. Raises ConfigError when its files are nowhere."""
    return EncoderTokens(load_tokenizer(find_model(spec, settings)))
