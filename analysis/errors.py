"""Errors that end a command with a message."""


class Usage(Exception):
    """The command line asks for something impossible; the message says why, and what is possible.

    Each argument of the exception is a line."""


class Unreachable(Exception):
    """The prediction cannot be made from the given runs; the message says why, and which runs are needed."""


class Damaged(Usage):
    """A file was changed after it was written; the message has file, line and remedy."""
