"""``support.weights`` with a real cross-encoder: a tiny one, made here, whose answer is set by its last bias."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import ConfigError
from pipeline.settings_query import SupportSettings
from query_service.support.build import build_checker
from tests.unit.support.conftest import source, verdicts

pytest.importorskip("sentence_transformers")
TEXT = "The ferry leaves the harbour at noon."
SAID = "The ferry leaves the harbour at noon on most days of the week."
CLASSES = ("entailment", "neutral", "contradiction")


def made(folder: Path, labels: tuple[str, ...], winner: str) -> Path:
    """A BERT of random weights whose classifier prefers one class."""
    import torch
    from transformers import (  # type: ignore[attr-defined]  # the tokenizer is there, but not declared
        BertConfig,
        BertForSequenceClassification,
        BertTokenizerFast,
    )

    folder.mkdir()
    words = ["the", "ferry", "leaves", "harbour", "at", "noon", "on", "most", "days", "of", "week", "."]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n", encoding="utf-8")
    BertTokenizerFast(vocab_file=str(vocabulary)).save_pretrained(folder)
    torch.manual_seed(1)
    config = BertConfig(  # type: ignore[call-arg]  # labels belong to every configuration
        vocab_size=len(words) + 5, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, num_labels=len(labels), id2label=dict(enumerate(labels)),
        label2id={name: i for i, name in enumerate(labels)},
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.bias[labels.index(winner)] += 6.0
    model.save_pretrained(folder)
    return folder


def settings(folder: Path) -> SupportSettings:
    """Of the backend 'nli'."""
    return SupportSettings(backend="nli", weights=folder)


@pytest.mark.parametrize("labels", [CLASSES, ("contradiction", "entailment", "neutral"), CLASSES[::-1]])
def test_probabilities_come_in_the_order_of_the_classes_whatever_the_models(
    tmp_path: Path, labels: tuple[str, ...]
) -> None:
    from query_service.rerank.entailment import EntailmentModel

    model = EntailmentModel(made(tmp_path / "nli", labels, "entailment"), max_tokens=64)
    rows = model.probabilities([(SAID, TEXT), (TEXT, SAID)])
    assert rows.shape == (2, 3) and np.allclose(rows.sum(axis=1), 1.0, atol=1e-5)
    assert (rows.argmax(axis=1) == CLASSES.index("entailment")).all() and (rows[:, 0] > 0.9).all()


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(("winner", "supported"), [("entailment", True), ("neutral", False), ("contradiction", False)])
def test_the_model_in_the_folder_decides_and_overrules_no_veto(tmp_path: Path, winner: str, supported: bool) -> None:
    folder = made(tmp_path / "nli", ("contradiction", "entailment", "neutral"), winner)
    checker = build_checker(settings(folder))
    sources = [source(1, "The ferry leaves the harbour at noon and the tug at ten.")]
    found = verdicts(
        [("The ferry leaves at noon.", (1,)), ("The ferry leaves at nine.", (1,))], sources, checker=checker
    )
    assert found[0].supported is supported
    assert not found[1].supported


def test_a_folder_with_other_labels_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="labels"):
        build_checker(settings(made(tmp_path / "two", ("yes", "no", "maybe"), "yes")))
    with pytest.raises(ConfigError, match="no folder"):
        build_checker(settings(tmp_path / "none"))
