"""A plan bound to one rank of a mesh, as a straight line of Python, and carried out."""
