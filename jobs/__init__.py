"""Campaigns of the mini-apps, on this machine or through a batch system: `python -m jobs`."""

import sys

# `python -m` puts the current directory first on the path, and files there may hide modules of this suite. Each package
# of the suite repeats these lines before any other import, because any of them may be imported first.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m").partition(".")[0] == __name__
    and not sys.flags.safe_path
    and sys.path[0] != __path__[0].rpartition("/")[0]
):
    del sys.path[0]

import miniapps  # noqa: F401 (it checks that no other package hides one of this suite)
