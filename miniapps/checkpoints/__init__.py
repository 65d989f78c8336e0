"""Checkpoints: their files, which a run verifies before it continues from one, and their options."""
