"""The iterative solver: how rounding differences feed back through iterations."""
