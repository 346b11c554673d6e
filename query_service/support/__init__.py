"""Whether the sources of an answer say what each of its sentences says."""
