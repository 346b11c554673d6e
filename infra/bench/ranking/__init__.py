"""Ranking measured: what each part brings in quality, what each stage costs in time, and many clients at once."""
