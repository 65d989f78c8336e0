"""Binds a plan to one rank of a mesh, writes it as straight-line Python, and executes it."""
