"""The command `fpna`: every command of the suite by one name. It does not import from the current directory, so that
files there cannot hide ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from kernels.commands.entry import command_line
from miniapps import require_own

APPLICATIONS = (
    "coupled",
    "reductions",
    "solver",
    "training",
    "operations",
    "inference",
    "calibrate",
)  # packages of miniapps
ANALYSIS = ("report", "divergence", "variability", "growth", "components", "sums", "solves", "scaling",
            "sharding", "predict", "score", "nodes", "lint", "chain", "show", "export", "ask")  # fmt: skip
OTHERS = {
    "run": "a program of yours in any language, as it is: mpirun -n 4 fpna run -- ./app",
    "jobs": "campaigns and batch scripts: fpna jobs --help",
    "kernels": "orderings, sums and products as instruments: fpna kernels allreduce|sums|contract --help",
    "partition": "a training step over a mesh of ranks, planned and not run: fpna partition explain --help",
    "embeddings": "times steps of tables of embeddings, for sharding: mpirun -n 2 fpna embeddings FILE",
    "cause": "whether rounding explains the difference of two runs, by disturbed launches: fpna cause A B -- ./app",
    "cost": "how many times as long B takes as A, by paired launches: fpna cost A B [-- COMMAND]",
    "verify": "executes parts of a run again, on any number of ranks, and compares every bit",
    "doctor": "what this machine has, what is missing, and how to get it",
    "demo": "runs that differ and runs that agree, and the report on them",
}


def text() -> str:
    """What can be called, as plain text."""
    lines = [
        "usage: fpna COMMAND [options]",
        "",
        "applications, under mpirun: mpirun -n 4 fpna coupled --help",
    ]
    lines += [f"  {name:12} {_application(name).summary}" for name in APPLICATIONS]
    lines += ["", "what traces say"]
    lines += [f"  {name:12} {import_module(f'analysis.commands.{name}').SUMMARY}" for name in ANALYSIS]
    lines += ["", "more", *(f"  {name:12} {summary}" for name, summary in OTHERS.items())]
    return "\n".join([*lines, "", "fpna COMMAND --help   options and examples of each", "fpna --version"])


@command_line
def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    require_own("analysis", "jobs")
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what could follow
        from fpna.completion import complete

        complete()
    if name in ("-h", "--help"):
        print(text())
        return 0
    if name == "--version":
        from kernels import VERSION

        print(VERSION)
        return 0
    run = _command(name)
    if run is None:
        close = get_close_matches(name, (*APPLICATIONS, *ANALYSIS, *OTHERS), 1)
        hint = f"; did you mean {close[0]}?" if close else "; fpna --help lists them"
        print(f"fpna: no command {name!r}{hint}", file=sys.stderr)
        return 2
    return run(rest)


def _command(name: str) -> Callable[[list[str]], int] | None:
    """What runs a command by the arguments after its name."""
    if name in APPLICATIONS:
        from miniapps.runner.main import main as run

        return lambda argv: run(replace(_application(name), command=f"fpna {name}"), argv)
    if name in ANALYSIS:
        return lambda argv: import_module("analysis.__main__").main([name, *argv], "fpna")
    if name in ("jobs", "kernels"):
        return lambda argv: import_module(f"{name}.__main__").main(argv, f"fpna {name}")
    if name == "partition":
        return lambda argv: import_module("miniapps.partition.commands").main(argv, "fpna partition")
    if name == "embeddings":
        return lambda argv: import_module("miniapps.embeddings.__main__").main(argv, "fpna embeddings")
    if name in ("cause", "cost", "verify"):
        return lambda argv: import_module(f"miniapps.{name}.command").main(argv, f"fpna {name}")
    if name == "doctor":
        return lambda argv: import_module("miniapps.doctor").main(argv, "fpna doctor")
    if name == "run":
        return lambda argv: import_module("miniapps.programs.observing").main(argv)
    return (lambda argv: import_module("miniapps.demo").main(argv, "fpna demo")) if name == "demo" else None


def _application(name: str) -> Any:
    return import_module(f"miniapps.{name}").APP
