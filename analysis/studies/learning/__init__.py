"""Runs that learn: accuracy over time, prices of wires, decisions, variance, weights and outputs apart."""

SUMMARY = "of runs that learn: accuracy over time, prices of wires, decisions, variance of accuracy"
DETAIL = """\
Runs that recorded accuracy and loss are used. Wires are compared over the seeds that both have, at one learning rate
and each at its best."""
EXAMPLES = """\
  python -m analysis learning runs/"""
NEEDS = "accuracy and loss by step"
RECORDED = "accuracy and loss were recorded"
ANSWERS = (
    "Accuracy and loss of a training vary with the seed, the wire or compression of gradients; the model "
    "does not reach the published accuracy."
)
