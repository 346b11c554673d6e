"""Texts to vectors: local encoders on torch and OpenVINO, embedding endpoints, token counting, the choice of a backend.

catalogue    encoders by short name: what a generation declares                      pure
weights      where files are; packages: data packages that carry them
convert      other forms of the weights (OpenVINO, float), cached
runtime      ids to hidden states; encoder: texts to unit vectors
endpoint     the same by HTTP (wire: formats, retrying: repetitions, answers: checks)
trial        the fastest backend that agrees with fp32; remembered: once per machine
reference    the record's vectors, and whether this host makes the same
"""

from pipeline.embed.catalogue import Known, known_encoder, known_encoders
from pipeline.embed.encoder import LocalEncoder, load_encoder
from pipeline.embed.reference import load_faithful, reference_vectors
from pipeline.embed.stub import StubEncoder
from pipeline.embed.tokens import EncoderTokens, token_counter
from pipeline.embed.trial import choose_backend

__all__ = [
    "EncoderTokens",
    "Known",
    "LocalEncoder",
    "StubEncoder",
    "choose_backend",
    "known_encoder",
    "known_encoders",
    "load_encoder",
    "load_faithful",
    "reference_vectors",
    "token_counter",
]
