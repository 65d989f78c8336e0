"""The errors of a cluster."""

from __future__ import annotations


class ClusterError(Exception):
    """A cluster cannot be made, used or removed; the message says why and what to do."""


class Usage(ClusterError):
    """A request that can never be fulfilled, such as a node that does not exist."""
