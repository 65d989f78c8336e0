"""Audits of operations, of runs that wrote a certificate: what bits depend on, documentation against what was seen."""
