"""Compares the predictions of a ledger with the times of runs."""
