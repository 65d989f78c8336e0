"""Utilisation of cores in runs over a mesh, and their plans."""

SUMMARY = "runs over a mesh: utilisation of their cores, and their plans"
DETAIL = """\
Uses runs that recorded their utilisation: the operations of a step over the capacity of the cores."""
EXAMPLES = """\
  python -m analysis utilisation runs/"""
NEEDS = "the utilisation of a mesh"
