"""Bytes to typed blocks: sniffing, character sets, HTML, Markdown with front matter, plain text."""

from pipeline.extract.extractor import BlockExtractor
from pipeline.extract.front_matter import front_matter

__all__ = ["BlockExtractor", "front_matter"]
