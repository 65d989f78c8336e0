"""Batch scripts for the mini-apps: `python -m jobs render ...` prints one, ready for `sbatch`."""

import miniapps  # noqa: F401 (which sees that no other package hides one of ours)
