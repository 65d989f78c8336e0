"""The end of a training whose numbers are none."""

from miniapps.errors import RunError


class NotFinite(RunError):
    """A gradient or a loss is no number."""
