"""Check files of unknown origin before anything uses them; no other package opens them (docs/reference/files.md)."""

from miniapps.untrusted.regular import Refused, open_regular, read_bytes, read_text

__all__ = ["Refused", "open_regular", "read_bytes", "read_text"]
