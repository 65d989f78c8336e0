"""Transcripts in docs/explanation/allreduce.md: `python -m tests.transcripts` runs their commands again
and writes what they print.

They are the indented lines behind `$ python -m kernels.allreduce`, but for commands that need MPI; of `draw` the
pictures are written.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

from kernels.commands.allreduce import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "allreduce.md"
PICTURES = ROOT / "docs" / "pictures" / "allreduce"
_COMMAND = re.compile(r"    \$ python -m kernels\.allreduce(?: +(?!properties|identify)(.*))?$")


def renewed(text: str) -> tuple[str, dict[str, str]]:
    """The page with what its commands print now, and the pictures that they draw, by their place."""
    lines, pictures, stale = [], {}, False
    for line in text.splitlines():
        match = _COMMAND.match(line)
        stale = stale and line.startswith("    ") and not line.startswith("    $")
        if match:
            command = shlex.split(match[1] or "")
            if command[:1] == ["draw"]:
                *command, place = command
                pictures[place] = printed([*command, "-"])
            lines.append(line)
            if command[:1] != ["draw"]:
                lines += [f"    {row}".rstrip() for row in printed(command).splitlines()]
            stale = True
        elif not stale:
            lines.append(line)
    return "\n".join(lines) + "\n", pictures


def printed(command: list[str]) -> str:
    """What a command prints; it must succeed."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = main(command)
    assert status == 0, f"{command} in {PAGE.name}"
    return output.getvalue()


if __name__ == "__main__":
    page, drawn = renewed(PAGE.read_text())
    PAGE.write_text(page)
    for picture in PICTURES.iterdir():
        picture.unlink()
    for place, picture in drawn.items():
        (ROOT / place).write_text(picture, newline="\n")
