"""Errors that end a run with a sentence and an exit code of their own: see miniapps.runner.failure."""

from __future__ import annotations


class UsageError(Exception):
    """What is asked for cannot be: an option, deck, name or place; the message says where and what can."""


class RunError(Exception):
    """A run cannot go on for a reason of its numbers, not of the program; the message is enough to act on."""
