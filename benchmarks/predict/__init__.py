"""Compares predictions of the time per step with later runs, and with the floor of such errors."""
