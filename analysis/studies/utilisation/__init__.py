"""How well runs over a mesh used their cores, and their plans."""

SUMMARY = "runs over a mesh: how well they used their cores, and their plans"
DETAIL = """\
Runs that recorded their utilisation are used: operations of a step over what the cores could have done."""
EXAMPLES = """\
  python -m analysis utilisation runs/"""
NEEDS = "the utilisation of a mesh"
