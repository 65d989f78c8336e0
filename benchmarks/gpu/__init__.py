"""The GPU path, checked and timed."""
