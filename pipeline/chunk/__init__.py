"""Typed blocks to parents and children."""

from pipeline.chunk.chunker import HierarchicalChunker

__all__ = ["HierarchicalChunker"]
