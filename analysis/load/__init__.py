"""Traces to frames: where runs are, what a file holds, one run from its ranks, all runs as frames."""
