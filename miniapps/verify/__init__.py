"""Runs executed again, a part of each, and compared bit by bit with what they recorded (docs/how-to/verify.md)."""
