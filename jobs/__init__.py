"""Batch scripts for the mini-apps: `python -m jobs render ...` prints one, ready for `sbatch`."""

import sys

# `python -m` puts the current directory first in sys.path; modules there must not shadow ours. Each of our packages
# repeats these lines before any other import, since it cannot import a shared function safely.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m").partition(".")[0] == __name__
    and not sys.flags.safe_path
    and sys.path[0] != __path__[0].rpartition("/")[0]
):
    del sys.path[0]

import miniapps  # noqa: F401 (which sees that no other package hides one of ours)
