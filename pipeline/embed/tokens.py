"""The encoder's own tokens, counted without loading its weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.embed.catalogue import known_encoders
from pipeline.embed.weights import find_model, on_this_machine, verify_tokenizer
from pipeline.errors import ConfigError
from pipeline.ports import TokenCounter
from pipeline.settings import Settings
from schemas.generation import EncoderSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL = 2  # tokens that a model puts around a text
_PIECES = re.compile(r"[A-Za-z]{1,3}|[0-9]|[^\sA-Za-z0-9]|[\n\t]")


def load_tokenizer(folder: Path) -> Tokenizer:
    """The folder's fast tokenizer, neither truncating nor padding."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError("encoder.weights", f"no tokenizer.json in {folder}", "Use a complete model folder.")
    return _tokenizer(path)


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


class EstimatedTokens:
    """ports.TokenCounter for a model whose tokenizer is not known: an estimate from above.

    Three letters, one digit, one sign, one break or one UTF-8 byte of any other character count as a token. English
    prose is counted about 1.6 times; long random strings can have more tokens than this says, and the endpoint, which
    is asked not to truncate, then refuses them.
    """

    def count(self, text: str) -> int:
        """Estimated tokens of ``text`` including special tokens."""
        return len(self.offsets(text)) + SPECIAL

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Character span of each estimated token; a character of several bytes is there several times."""
        spans: list[tuple[int, int]] = []
        for found in _PIECES.finditer(text):
            piece = found.group()
            times = 1 if piece.isascii() else len(piece.encode("utf-8", "replace"))
            spans += [found.span()] * times
        return spans


def token_counter(spec: EncoderSpec, settings: Settings) -> TokenCounter:
    """The counter of an encoder; the same on every host, so that all cut documents alike.

    For an endpoint: the tokenizer that the spec pins, from the endpoint's settings or from a known encoder's files;
    an estimate if it pins none. Raises ConfigError when the files are nowhere or are others.
    """
    if spec.provider == "local":
        return EncoderTokens(load_tokenizer(find_model(spec, settings)))
    endpoint = settings.endpoints.get(spec.endpoint)
    field = f"endpoints.{spec.endpoint}.tokenizer"
    named = endpoint.tokenizer if endpoint is not None else None
    if not spec.tokenizer_sha256:
        if named is not None:
            raise ConfigError(
                field,
                "the generation counts tokens by an estimate, and this would cut documents otherwise",
                "Declare encoder.tokenizer_sha256 in a new generation, or remove the setting.",
            )
        return EstimatedTokens()
    path = named or _known_tokenizer(spec, settings)
    if path is None or not path.is_file():
        raise ConfigError(
            field,
            f"the tokenizer of {spec.model} (sha256 {spec.tokenizer_sha256[:16]}…) is not on this machine",
            f"Name its file by HEADWATER_ENDPOINTS__{spec.endpoint.upper()}__TOKENIZER.",
        )
    verify_tokenizer(path, spec, field)
    return EncoderTokens(_tokenizer(path))


def _known_tokenizer(spec: EncoderSpec, settings: Settings) -> Path | None:
    """The pinned tokenizer.json among the files of known encoders that are on this machine."""
    for known in known_encoders().values():
        if known.spec.model == spec.model:
            folder = on_this_machine(known.spec, settings)
            if folder is not None:
                return folder / "tokenizer.json"
    return None


def _tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
