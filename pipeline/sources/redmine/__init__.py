"""Redmine: issues, their private notes, wiki pages and attachments, and everybody's rights in its projects."""

from __future__ import annotations

from pipeline.sources.redmine.system import Redmine

__all__ = ["Redmine"]
