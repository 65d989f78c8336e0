"""`python -m miniapps` lists the applications; `python -m miniapps doctor` checks this machine."""

from __future__ import annotations

import sys

from kernels import VERSION
from kernels.commands.entry import command_line
from miniapps import applications
from miniapps.runner.config import closest
from miniapps.untrusted.text import tell

COMMANDS = ("list", "doctor", "verify")


def listing() -> str:
    """The applications and other commands, as plain text."""
    apps = {name: applications.app(name).summary for name in applications.names()}
    width = max(len(name) for name in (*apps, *COMMANDS))
    lines = ["applications, each started by [mpirun -n N] python -m miniapps.NAME:"]
    lines += [f"  {name:{width}}  {summary}" for name, summary in apps.items()]
    lines += [
        "",
        "python -m miniapps.NAME --help    options of an application",
        "python -m miniapps.NAME --list    all decks, orderings, variants and options",
        "python -m miniapps doctor         checks this machine and names what to install or repair",
        "python -m miniapps verify RUN     executes parts of a run again, and compares every bit",
        "python -m miniapps.partition      plans a training step over a mesh of ranks, and runs nothing",
        "python -m miniapps.demo           runs that differ, runs that agree, and the report on both",
        "python -m analysis --help         commands that read the traces",
    ]
    return "\n".join(lines)


@command_line
def main(argv: list[str]) -> int:
    """Run the command in `argv`; returns the exit code."""
    command = argv[0] if argv else "list"
    if command == "doctor":
        from miniapps.doctor import main as doctor

        return doctor(argv[1:])
    if command == "verify":
        from miniapps.verify.command import main as verify

        return verify(argv[1:])
    if command in ("list", "-h", "--help"):
        tell(listing(), keep="\n")
        return 0
    if command == "--version":
        tell(VERSION)
        return 0
    tell(f"miniapps: unknown command {command!r}{closest(command, COMMANDS)}", sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
