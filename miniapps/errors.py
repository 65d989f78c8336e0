"""Errors that end a run with a sentence and an exit code of their own: see miniapps.runner.failure."""

from __future__ import annotations


class UsageError(Exception):
    """What is asked for cannot be: an option, deck, name or place; the message says where and what can."""


class RunError(Exception):
    """A run cannot go on for a reason of its numbers, not of the program; the message is enough to act on."""


class Stalled(Exception):
    """A rank makes no progress; `rank` is the one to blame, where one is known, and `speaks` whether this rank is the
    one of its node that says so."""

    def __init__(self, message: str, rank: int | None, speaks: bool):
        super().__init__(message)
        self.rank, self.speaks = rank, speaks
