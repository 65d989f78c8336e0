"""Completion of `fpna` command lines in a shell: `eval "$(register-python-argcomplete fpna)"`.

The shell starts the command with `_ARGCOMPLETE` set and the line so far in COMP_LINE; argcomplete answers from the
parser of the command on this line and builds no other parser.
"""

from __future__ import annotations

import os
import sys

from fpna.commands import parser_of


def complete() -> None:
    """Answer the shell, and end the process."""
    try:
        import argcomplete
    except ImportError:  # the shell then has nothing to offer
        sys.exit(1)
    words = argcomplete.split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    parser, before = parser_of(words[1:])
    os.environ["_ARGCOMPLETE"] = str(1 + before)  # from which word on the line is the parser's
    argcomplete.autocomplete(parser)
