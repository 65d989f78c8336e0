"""Audits of PyTorch operations: what the bits of a result depend on, beside its input.

alternatives/      operators whose sums have a chosen order, for use in place of torch's; see docs/how-to/torch.md
cases/             the operations, a file per family; importing it registers them. operations.py: what an operation
                   and a case are; inputs.py: seeded inputs, in memory of any alignment
calls.py           one call of a case, forward or backward: its result as NumPy's
audit.py           what is changed between two calls, and what came of it
differences.py     how far results lie apart
documentation.py   what torch's own documentation states, as a table
verdicts.py        these statements against what was seen
own.py             a function of a user as a case, and what it does beside returning a result
worker.py          the process that audits, case by case, for one that survives it
"""
