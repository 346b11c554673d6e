"""Float weights out of a dynamically quantised ONNX file: weight = (integer - zero point) x scale.

Rounded weights are another set of weights than the original ones, so a generation pins the ONNX file itself. Running
them in float differs from what the file's own graph does in one point: that graph also rounds the activations of
every call. The float run is the reference of the backends' trial, as it is for every other encoder.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def dequantise(source: Path, target: Path) -> None:
    """Write ``model.safetensors`` of a BERT body, with its config.json and tokenizer.json, into ``target``.

    ``source`` is a folder of model.onnx, config.json and tokenizer.json. Raises ValueError when the file holds other
    nodes than such a model has.
    """
    from safetensors.numpy import save_file

    target.mkdir(parents=True, exist_ok=True)
    save_file(float_weights(source / "model.onnx"), target / "model.safetensors", metadata={"format": "pt"})
    for name in ("config.json", "tokenizer.json"):
        shutil.copyfile(source / name, target / name)


def float_weights(path: Path) -> dict[str, Floats]:
    """Parameter name -> values (float32), matrices as torch has them (outputs, inputs)."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    named = {node.input[1]: _module(node.name) + ".weight" for node in graph.node if node.op_type == "MatMulInteger"}
    weights: dict[str, Floats] = {}
    for name, value in values.items():
        if name.endswith("_quantized"):
            whole = name.removesuffix("_quantized")
            floats = _floats(value, values[f"{whole}_zero_point"], values[f"{whole}_scale"])
            # a matrix is named by its node, and stands transposed; embeddings keep their name
            weights[named.get(name, whole)] = np.ascontiguousarray(floats.T) if name in named else floats
        elif value.dtype == np.float32 and name.endswith((".weight", ".bias")):
            weights[name] = value
    if not any(name.removeprefix("bert.").startswith("encoder.layer.") for name in weights):
        raise ValueError(f"{path.name} holds no quantised BERT body")
    return weights


def _module(node: str) -> str:
    """The module whose matrix a node multiplies by; a linear layer with a bias may have been one node."""
    return node.removesuffix("/MatMul_quant").removesuffix("/Gemm_MatMul_quant").strip("/").replace("/", ".")


def _floats(quantised: npt.NDArray[np.generic], zero_point: npt.NDArray[np.generic], scale: Floats) -> Floats:
    return ((quantised.astype(np.int32) - zero_point.astype(np.int32)) * scale).astype(np.float32)
