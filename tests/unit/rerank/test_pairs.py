"""Pairs are cut to the model's tokens: the passage by what is too much, a query only to its share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from query_service.rerank.pairs import PairTokenizer, estimated

MAX = 32


def save_tokenizer(folder: Path) -> None:
    """One token a word; with a padding and a truncation of its own, as published files have them."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "pump": 4, "lamp": 5, "seven": 6, "zebra": 7}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=512)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PairTokenizer:
    folder = tmp_path_factory.mktemp("model")
    save_tokenizer(folder)
    return PairTokenizer(folder, MAX)


@pytest.mark.requirement("B4")
def test_a_short_pair_is_whole_and_not_padded(tokenizer: PairTokenizer) -> None:
    (pair,) = tokenizer.pairs("pump lamp", ["seven pump"])
    assert list(pair.ids) == [2, 4, 5, 3, 6, 4, 3]
    assert list(pair.types) == [0, 0, 0, 0, 1, 1, 1]
    assert (pair.tokens, pair.query, pair.passage) == (7, "pump lamp", "seven pump")


@pytest.mark.requirement("B4")
def test_only_the_passage_is_cut(tokenizer: PairTokenizer) -> None:
    (pair,) = tokenizer.pairs("pump lamp seven", ["lamp " * 100])
    assert pair.tokens == MAX
    assert list(pair.ids[:5]) == [2, 4, 5, 6, 3]
    assert pair.passage == " ".join(["lamp"] * (MAX - 6))


@pytest.mark.requirement("B4")
def test_a_long_query_leaves_room_for_the_passage(tokenizer: PairTokenizer) -> None:
    pairs = tokenizer.pairs("pump " * 500, ["lamp " * 500, "seven"])
    assert pairs[0].query == " ".join(["pump"] * 14)
    assert pairs[0].passage.count("lamp") == MAX - 14 - 3
    assert pairs[1].passage == "seven"


@pytest.mark.requirement("B4")
@given(st.text(max_size=200), st.lists(st.text(max_size=300), max_size=4))
def test_no_input_breaks_it(tokenizer: PairTokenizer, query: str, passages: list[str]) -> None:
    pairs = tokenizer.pairs(query, passages)
    assert len(pairs) == len(passages)
    for pair, passage in zip(pairs, passages, strict=True):
        assert pair.tokens == len(pair.ids) == len(pair.types) <= MAX
        assert query.startswith(pair.query) and passage.startswith(pair.passage)
        assert 0 < estimated(query, passage, MAX).tokens <= MAX


def test_a_folder_without_tokenizer_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rerank\.weights: .*tokenizer\.json"):
        PairTokenizer(tmp_path, MAX)


def test_absurdly_long_texts_are_not_sent_whole() -> None:
    pair = estimated("q" * 100_000, "p" * 100_000, 256)
    assert len(pair.query) + len(pair.passage) < 10_000
