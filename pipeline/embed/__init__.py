"""Texts to vectors: local encoders on torch and OpenVINO, token counting, the choice of a backend, and a stub."""

from pipeline.embed.encoder import LocalEncoder, load_encoder
from pipeline.embed.stub import StubEncoder
from pipeline.embed.tokens import EncoderTokens, token_counter
from pipeline.embed.trial import choose_backend

__all__ = ["EncoderTokens", "LocalEncoder", "StubEncoder", "choose_backend", "load_encoder", "token_counter"]
