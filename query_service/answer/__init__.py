"""Answers that rest on what the caller may read: evidence, a draft, a check of every sentence, and the way out."""
