"""Errors that end a run with one sentence and a specific exit code: see miniapps.runner.failure."""

from __future__ import annotations


class UsageError(Exception):
    """An invalid request: an option, deck, name or place; the message names it and lists what is valid."""


class RunError(Exception):
    """A run cannot continue because of its numbers, not of an error in the program; the message says what to do."""


class Stalled(Exception):
    """A rank makes no progress. `rank`: the rank to blame, None if unknown; `speaks`: whether this rank prints the
    message for its node."""

    def __init__(self, message: str, rank: int | None, speaks: bool):
        super().__init__(message)
        self.rank, self.speaks = rank, speaks
