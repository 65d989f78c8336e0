"""Predictions of a ledger beside what runs took."""
