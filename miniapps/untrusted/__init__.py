"""The one door through which files enter: nothing is believed before it was checked here (docs/reference/files.md)."""

from miniapps.untrusted.regular import Refused, open_regular, read_bytes, read_text

__all__ = ["Refused", "open_regular", "read_bytes", "read_text"]
