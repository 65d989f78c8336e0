"""The command `fpna cpus -- PROGRAM`: its options and its answer."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kernels.as_json import Document, columns, document, rows
from kernels.commands.entry import command_line
from kernels.progress import Progress
from miniapps import launching
from miniapps.cpus import against, answer, asking
from miniapps.cpus.experiment import experiment
from miniapps.cpus.launches import COPY, DIRECTORIES, OWN, QEMU, Plan, require_copyable, require_program
from miniapps.errors import UsageError
from miniapps.untrusted.text import tell

SCHEMA = 1
MODELS = ("Nehalem", "Haswell", "EPYC-Rome")

DESCRIPTION = """\
Says on which other processors a program would give other results, and through which library. It launches the program
as it is, then with each library held to the code for an older processor by the library's own setting, then with all of
them as on some known processors, and compares what the program printed and wrote. It asks each library what it chose.
"""
EPILOG = f"""\
examples:
  fpna cpus -- ./app input.txt
  fpna cpus -- python script.py
  fpna cpus -- mpirun -n 4 ./app                     output and files are compared
  fpna cpus -- mpirun -n 4 fpna run --out {OWN} -- ./app    all messages are compared, too
  fpna cpus --emulate -- ./app                       also under qemu, as on {", ".join(MODELS)}

Each launch runs in a copy of the current directory. {OWN} in the command is a new directory of each launch; then only
what is written there is compared.

Exit codes: 0 equal; 1 failure; 2 usage, or a launch failed; 3 differs; 4 open, and the answer says what is missing.
"""

DOCUMENTS = {
    "cpus": Document(
        columns("""
            program | list of text | the command
            verdict | text | `equal`, `differs`, `open`
            sentence | text
            layers | list of text | the libraries that choose code by the processor
            chose | object | what each layer chose without settings
            unheld | list of text | what chooses code for numbers, and no setting holds it
            asking | list of text | other files that ask the processor itself
            held | object? | settings that hold the program to one result: `variables`, the hash `result`, `holds`,
              `difference`, and `cost`, the ratio of processor times
            result | text | a hash of the compared content of an ordinary launch
            processor instructions | text
            against | text? | the comparison with another machine's answer
            left_out | object | lines with times that are not compared, by output or file
            launches | integer
            seconds | number, s | time of an ordinary launch
        """),
        (
            rows("rows", "a layer held to a level, or all as on a processor", """
                layer level | text | the layer is empty where all of them are held
                variables | object
                chose | text | what the library answered
                state | text | `equal`, `differs`, `failed`, `here`, `newer`, `not held`, `unsteady`, `unsure`
                difference | text? | the first one
                why | text
            """),
            rows("emulated", "a processor that qemu emulated", """
                layer level | text
                variables | object
                chose state | text
                difference | text?
                why | text
            """),
        ),
        "Exit codes are the same as with text output: 0, 3, 4 ([page](../how-to/cpus.md))",
    ),
}  # fmt: skip


def parser(prog: str = "fpna cpus") -> argparse.ArgumentParser:
    """The command line before `--`."""
    top = launching.parser(
        prog, f"{prog} [options] -- PROGRAM [ARGUMENTS]", DESCRIPTION, EPILOG, quiet="the sentence alone"
    )
    top.add_argument(
        "--directory", choices=tuple(DIRECTORIES), default=COPY,
        help=f"where each launch runs: {'; '.join(f'{key}: {text}' for key, text in DIRECTORIES.items())} (copy)",
    )  # fmt: skip
    top.add_argument("--input", type=Path, metavar="FILE", help="standard input of each launch (empty)")
    top.add_argument(
        "--leave-out", action="append", default=[], metavar="TEXT",
        help="compare no line, and no file, with this text in it or in its name (may be given several times)",
    )  # fmt: skip
    top.add_argument(
        "--emulate", action="store_true", help=f"also launch it under qemu, as on {', '.join(MODELS)}: slow"
    )
    top.add_argument(
        "--against", type=Path, metavar="FILE",
        help="compare with the answer of another machine: what --json printed there",
    )  # fmt: skip
    top.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep all launches in this new or empty directory"
    )
    return top


@command_line
def main(argv: Sequence[str] | None = None, prog: str = "fpna cpus") -> int:
    """Launch the program with settings and print the answer; returns the exit code."""
    own, command = launching.around_dashes(argv)
    options = parser(prog).parse_args(own)
    return launching.code_of(prog, partial(_answer, options, tuple(command), prog))


def _answer(options: argparse.Namespace, command: tuple[str, ...], prog: str) -> int:
    if not command:
        raise UsageError(f"no program after --; write {prog} -- ./app ARGUMENTS")
    require_program(command)
    if options.emulate and shutil.which(QEMU) is None:
        raise UsageError(f"--emulate: no {QEMU} on PATH; on Debian: apt-get install qemu-user")
    if options.input is not None and not options.input.is_file():
        raise UsageError(f"--input {options.input}: no such file")
    if options.directory == COPY and not any(OWN in word for word in command):
        require_copyable(Path.cwd())
    plan = Plan(
        command, options.directory, options.input, options.timeout, asking.library(), options.keep is not None
    )
    other = against.read(options.against) if options.against else None
    progress = Progress("cpus", quiet=options.quiet)
    with launching.kept(options.keep, "fpna-cpus-") as folder:
        found = experiment(plan, folder, options.leave_out, MODELS if options.emulate else (), progress.show)
        progress.clear()
    if options.json:
        compared = other and against.sentence(found, other)
        print(document(SCHEMA, "cpus", **answer.content(found, command), against=compared))
    else:
        for line in answer.lines(found, command, options.quiet):
            tell(line)
        if other:
            tell(f"  against    {against.sentence(found, other)}")
    return answer.CODES[answer.verdict(found)[0]]
