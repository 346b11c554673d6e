"""Reranking by cross-encoders: in this process or behind an endpoint, under a deadline."""
