"""Batch scripts for the mini-apps: `python -m jobs render ...` prints one, ready for `sbatch`."""

import sys

# `python -m` puts the current directory first, and what lies there is no code of ours. These lines are in each of our
# packages, before any other import: the first that is imported cannot look for another.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m").partition(".")[0] == __name__
    and not sys.flags.safe_path
    and sys.path[0] != __path__[0].rpartition("/")[0]
):
    del sys.path[0]

import miniapps  # noqa: F401 (which sees that no other package hides one of ours)
