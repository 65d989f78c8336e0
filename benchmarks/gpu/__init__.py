"""Checks and times the code on GPUs."""
