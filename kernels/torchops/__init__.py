"""Audits of PyTorch operations: what the bits of a result depend on, besides its input.

alternatives/      operators whose sums have a chosen order, in place of torch's; see docs/how-to/torch.md
cases/             the operations, a file per family; importing it registers them. operation.py defines operations and
                   cases; inputs.py draws seeded inputs
calls.py           one call of a case, forward or backward, with its result as arrays of NumPy
audit.py           changes conditions between calls, and compares the results
differences.py     measures how far results are apart
documentation.py   reads the statements of torch's documentation into a table
verdicts.py        compares these statements with the audited cases
own.py             a user's function as a case, and its side effects
worker.py          the process that audits, so that a crash does not end its caller
"""
