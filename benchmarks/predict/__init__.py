"""Predictions of the time per step against runs that come after them, and against their floor."""
