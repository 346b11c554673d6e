"""Moved to ``query_service.text.topics``."""

from query_service.text.topics import NAME, NAMED, STEM, VAGUE, stem, stems, weighed, worth

__all__ = ["NAME", "NAMED", "STEM", "VAGUE", "stem", "stems", "weighed", "worth"]
