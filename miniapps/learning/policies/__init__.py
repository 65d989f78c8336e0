"""Policies: they choose the wires of gradients and the next step."""
