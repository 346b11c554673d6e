"""Benchmarks of answers on the sample wiki: how much context, and what a small model writes."""
