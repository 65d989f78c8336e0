"""Errors that end a command with a sentence."""


class Usage(Exception):
    """The command line asks for what cannot be; the message says why and what can, an argument for each line."""


class Unreachable(Exception):
    """The runs given do not lead to what is to be predicted; the message says why and what would."""


class Damaged(Usage):
    """A file is not as it was written; the message has file, line and remedy."""
