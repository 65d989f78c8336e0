"""Audits of operations: what bits depend on, documentation against what was seen."""

SUMMARY = "of `operations`: what bits depend on, what documentation says, certificates compared"
DETAIL = """\
Only runs that wrote a certificate are used: those of `operations`. Several are compared with the first: versions,
machines, bits by one thread, and which changes alter which cases."""
EXAMPLES = """\
  python -m analysis audits runs/audit
  python -m analysis audits runs/of-torch-2.13 runs/of-torch-2.14"""
NEEDS = "a certificate, as `operations` does"
RECORDED = "operations of PyTorch were audited"
ANSWERS = "Which operation of PyTorch is nondeterministic, and does the documentation say so."
