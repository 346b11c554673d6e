"""Extraction in child processes: limits, isolation, replacement of children that die."""

from pipeline.extract.pool.pool import ExtractorPool

__all__ = ["ExtractorPool"]
