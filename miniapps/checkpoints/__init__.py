"""Checkpoints: their files, believed only after they were checked, and what a run compares before it continues."""
