"""Answers and results of searches that are kept for a minute, and served only to who may read them now."""
