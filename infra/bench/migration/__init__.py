"""A whole migration under traffic: what was changed and asked is recorded, and judged against a model."""
