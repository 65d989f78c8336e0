"""Runs that learn: accuracy over time, prices of wires, decisions, variance, differences of weights and outputs."""

SUMMARY = "of runs that learn: accuracy over time, prices of wires, decisions, variance of accuracy"
DETAIL = """\
Uses runs that recorded accuracy and loss. Compares wires over common seeds, at one learning rate and each at its best
rate."""
EXAMPLES = """\
  python -m analysis learning runs/"""
NEEDS = "accuracy and loss by step"
RECORDED = "accuracy and loss were recorded"
ANSWERS = (
    "Accuracy and loss of a training vary with the seed, the wire or compression of gradients; the model "
    "does not reach the published accuracy."
)
