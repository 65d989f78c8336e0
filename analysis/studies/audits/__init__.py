"""Audits of operations: the conditions that change bits, torch's documentation compared with measurements."""

SUMMARY = "of `operations`: what changes bits, is the documentation right, certificates compared"
DETAIL = """\
Uses runs of `operations`, which write a certificate. Compares each certificate with the first one: versions, machines,
bits by one thread, and which changes alter which cases."""
EXAMPLES = """\
  python -m analysis audits runs/audit
  python -m analysis audits runs/of-torch-2.13 runs/of-torch-2.14"""
NEEDS = "a certificate, as `operations` does"
RECORDED = "operations of PyTorch were audited"
ANSWERS = "Which operation of PyTorch is nondeterministic, and does the documentation say so."
