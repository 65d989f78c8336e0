"""Batch scripts for the mini-apps: `python -m jobs render ...` prints one, ready for `sbatch`."""
