"""MPI mini-apps in which the order of floating-point additions is an explicit, recorded choice."""

__version__ = "0.1.0"
