"""`fpna config`: how to compile and link a program with the library of sums."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from pathlib import Path

from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from miniapps.errors import UsageError
from miniapps.launching import code_of
from miniapps.programs.building import build as recorder
from miniapps.programs.library import Built, build
from miniapps.untrusted.arguments import Parser

RECORDER_NEEDS = ("-lstdc++", "-lpthread", "-ldl")
ASKED = {
    "cflags": "options to compile C or C++ with",
    "libs": "options to link with, before those of MPI",
    "fflags": "options to compile Fortran with",
    "flibs": "options to link Fortran with",
    "cmake": "the option of cmake that lets find_package(Fpna) find it",
    "pkgconfig": "the directory for PKG_CONFIG_PATH",
    "prefix": "its directory",
}


def parser(prog: str) -> Parser:
    """The parser of `fpna config`."""
    top = Parser(
        prog=prog,
        description="Builds the library of reproducible sums for C, C++ and Fortran with the MPI compiler on PATH, "
        "once, and prints how to use it.",
        example=f"mpicc app.c $({prog} --cflags --libs)",
        allow_abbrev=False,
    )  # fmt: skip
    for name, text in ASKED.items():
        top.add_argument(f"--{name}", action="store_true", help=text)
    top.add_argument(
        "--recorder",
        action="store_true",
        help="what to link before a static MPI library, so that fpna run records the program (alone)",
    )
    top.add_argument(
        "--mpicxx", metavar="PATH", help="the C++ compiler of the MPI (default: the first on PATH)"
    )
    top.add_argument("--mpifort", metavar="PATH", help="its Fortran compiler (default: the one beside it)")
    top.add_argument("--serial", action="store_true", help="for programs without MPI")
    top.add_argument("--install", metavar="DIR", type=Path, help="also copy it to a new directory DIR")
    add_json(top)
    add_loudness(top, "the options alone")
    add_version(top)
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = "fpna config") -> int:
    """Build the library and print the options that the command line names; returns the exit code."""
    args = parser(prog).parse_args(argv)
    return code_of(prog, lambda: _answer(args))


def _answer(args: argparse.Namespace) -> int:
    asked = [name for name in ASKED if getattr(args, name)]
    if args.recorder:
        if asked or args.serial or args.install or args.json:
            raise UsageError(
                "--recorder is no part of the library of sums; ask for it alone, or with --mpicxx"
            )
        print(shlex.join([str(recorder(args.mpicxx, static=True)), *RECORDER_NEEDS]))
        return 0
    built = build(args.mpicxx, args.mpifort, args.serial)
    if args.install:
        built = _installed(built, args.install)
    words = words_of(built)
    if any(name in ("fflags", "flibs") for name in asked) and not built.fortran:
        raise UsageError(
            "there is no Fortran module, since no Fortran compiler was found; load one, or name it: --mpifort PATH"
        )
    if args.json:
        print(json.dumps({name: words[name] for name in asked or ASKED}, indent=1))
    elif asked:
        print(" ".join(words[name] for name in asked))
    else:
        print("\n".join(f"{name:10} {words[name]}" for name in ASKED if built.fortran or name[0] != "f"))
    return 0


def words_of(built: Built) -> dict[str, str]:
    """What `fpna config` prints for each option."""
    return {
        "cflags": shlex.join(built.cflags),
        "libs": shlex.join(built.libs),
        "fflags": shlex.join(built.cflags[:1]),
        "flibs": shlex.join(built.flibs),
        "cmake": shlex.join([f"-DFpna_DIR={built.prefix / 'lib/cmake/Fpna'}"]),
        "pkgconfig": str(built.prefix / "lib/pkgconfig"),
        "prefix": str(built.prefix),
    }


def _installed(built: Built, to: Path) -> Built:
    if to.exists():
        raise UsageError(f"--install {to}: it exists; name a new directory")
    try:
        shutil.copytree(built.prefix, to)
    except OSError as error:
        raise UsageError(f"--install {to}: {error.strerror or error}") from error
    return Built(to.resolve(), built.serial, built.fortran)
