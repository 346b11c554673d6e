"""Models of a few nodes: whether pairs share calls, inputs that a model lacks, files that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import ConfigError
from query_service.rerank.onnx import OnnxReranker
from tests.unit.rerank.test_pairs import save_tokenizer

QUERY = "pump"
PASSAGES = ["lamp seven", "seven", "pump lamp seven pump", "lamp"]


def save_model(folder: Path, *, rounded: bool = False, types: bool = True, outputs: int = 1) -> None:
    """The score is the mean of the ids, rounded by the largest one of the call if ``rounded``."""
    import onnx
    from onnx import TensorProto, helper

    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    nodes = [
        helper.make_node("Mul", ["input_ids", "attention_mask"], ["kept"]),
        helper.make_node("Cast", ["kept"], ["floats"], to=TensorProto.FLOAT),
    ]
    if rounded:
        nodes += [
            helper.make_node("DynamicQuantizeLinear", ["floats"], ["small", "scale", "zero"]),
            helper.make_node("DequantizeLinear", ["small", "scale", "zero"], ["back"]),
        ]
    nodes += [
        helper.make_node("ReduceSum", ["back" if rounded else "floats", "axes"], ["sums"], keepdims=1),
        helper.make_node("Concat", ["sums"] * outputs, ["logits"], axis=1),
    ]
    graph = helper.make_graph(
        nodes, "scores",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in names],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", outputs])],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [1])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(folder / "model.onnx"))
    save_tokenizer(folder)


def opened(folder: Path, **settings: int) -> OnnxReranker:
    return OnnxReranker(folder, "small", **{"max_tokens": 32, "threads": 2, "batch": 8, **settings})


@pytest.mark.requirement("B4")
@pytest.mark.parametrize("types", [True, False])
def test_pairs_of_a_float_model_share_calls(tmp_path: Path, types: bool) -> None:
    save_model(tmp_path, types=types)
    model = opened(tmp_path)
    assert (model.shape.batch, model.shape.workers) == (8, 1)
    expected = [float(sum(pair.ids)) for pair in model.pairs(QUERY, PASSAGES)]
    np.testing.assert_allclose(model.score(QUERY, PASSAGES), expected)
    assert model.score(QUERY, []).shape == (0,)


@pytest.mark.requirement("B4", "I1")
def test_a_pair_of_a_rounded_model_is_scored_alone_whoever_asks_beside_it(tmp_path: Path) -> None:
    """Otherwise the text of another request, which the caller may not read, would move the caller's scores."""
    save_model(tmp_path, rounded=True)
    model = opened(tmp_path)
    assert (model.shape.batch, model.shape.workers) == (1, 2)
    alone = [float(model.score(QUERY, [passage])[0]) for passage in PASSAGES]
    assert model.score(QUERY, PASSAGES).tolist() == alone
    others = model.pairs("seven seven", ["seven " * 20])
    assert model.score_pairs([*model.pairs(QUERY, PASSAGES), *others]).tolist()[:4] == alone


def test_files_that_cannot_be_used_name_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rerank\.weights: .* lacks model\.onnx"):
        opened(tmp_path)
    save_tokenizer(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(ConfigError, match=r"rerank\.weights: .* cannot be loaded"):
        opened(tmp_path)
    save_model(tmp_path, outputs=2)
    with pytest.raises(ConfigError, match="2 values for 1 pairs"):
        opened(tmp_path)
