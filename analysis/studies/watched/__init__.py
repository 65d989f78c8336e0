"""Watched PyTorch models: where two trainings part, module by module, and how the difference grows."""

SUMMARY = "of `fpna.watch`: which modules differ in which step, and by how much"
DETAIL = """\
Compares the runs of one watched model with the first of them, and names the first module and pass that differ. Modules
stand in the order of computation. Sizes are in units in the last place of the numbers, from sums with signs."""
EXAMPLES = """\
  python -m analysis watched runs/
  python -m analysis watched runs/one runs/two --json"""
NEEDS = "a model that `fpna.watch` recorded in two runs or more"
RECORDED = "a PyTorch model was watched"
ANSWERS = (
    "Which layer or module of a watched PyTorch model differs first, in the forward or the backward pass."
)
