"""Errors that end a command with a sentence."""


class Usage(Exception):
    """The command line asks for what cannot be; the message says why and what can, an argument for each line."""


class Damaged(Usage):
    """A file is not as it was written; the message has file, line and remedy."""
