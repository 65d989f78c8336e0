"""The errors of a cluster."""

from __future__ import annotations


class ClusterError(Exception):
    """A cluster cannot be made, used or removed; the message says why and what to do."""


class Usage(ClusterError):
    """A request that no state of the machine allows."""
