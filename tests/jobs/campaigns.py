"""Campaigns for tests: files, and substitutes for mpirun with one fault each."""

import sys
from pathlib import Path

MPIRUN = Path(sys.executable).parent / "mpirun"
SMALL = """\
name = "small"
out = "out"

[defaults]
time = "00:01:00"

[[runs]]
app = "reductions"
ranks = [2]
guarantee = ["none", "layout"]
options = { "problem.sizes" = 100, "problem.arrays" = 2, "method.samples" = 2, "method.variants" = "sptr" }
"""

# Shell, for `wrapper`: what two ranks do when they start.
STARTED = 'for word; do case "$word" in *.ranks) echo 1 >> "$word"; echo 2 >> "$word";; esac; done'
STARTED_ALONE = STARTED.replace('; echo 2 >> "$word"', "")  # what one does


def write(folder, text=SMALL, **replaced):
    """The campaign `text` as a file in `folder`; `replaced` values of top-level or first keys of that name."""
    lines = text.splitlines()
    for key, value in replaced.items():
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{key} ="))
        lines[at] = f"{key} = {value}"
    path = Path(folder) / "campaign.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def wrapper(folder, body):
    """A program that runs `body` (shell) for a launch of an application, and then mpirun."""
    path = Path(folder) / "wrapped-mpirun"
    path.write_text(f'#!/bin/sh\ncase "$*" in *miniapps.*)\n{body}\n;; esac\nexec {MPIRUN} "$@"\n')
    path.chmod(0o755)
    return path
