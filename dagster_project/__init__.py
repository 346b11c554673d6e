"""Batch control plane: starts, steers and watches what consumers do; it appends no content or access events."""
