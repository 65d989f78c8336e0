"""Asks applications, without starting them, for their names and options, and whether they accept a command line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from miniapps.applications import app
from miniapps.applications import names as names
from miniapps.runner import commandline, launch
from miniapps.runner.config import Option, effective, of_role, stated
from miniapps.runner.failure import USAGE
from miniapps.runner.options import Common, RunOptions
from miniapps.system import environment
from miniapps.trace.head import problem_hash
from miniapps.untrusted.prediction import method_hash
from miniapps.untrusted.program import Program

if TYPE_CHECKING:
    from miniapps.runner.main import App

PRINT_AND_STOP = ("-h", "--help", "--version", "--list")


class Refusal(ValueError):
    """An application refuses a command line; the text is its message."""


@cache
def options(name: str) -> dict[str, Option]:
    """{section.name: option} of an application."""
    return {option.key: option for option in commandline.known_options(app(name))}


def check(name: str, arguments: Sequence[str], ranks: int) -> None:
    """Lets the application check its command line on `ranks` ranks, without starting it. Raises Refusal.

    Paths are relative to the current directory; variables FPNA_* are ignored. With --device cuda but without a CUDA
    device, as on a login node, only the options themselves are checked. Raises ImportError or RuntimeError if the
    application cannot be imported, as without an MPI library."""
    if stops := next((argument for argument in arguments if argument in PRINT_AND_STOP), None):
        raise Refusal(f"{stops} prints and runs nothing; leave it out")
    own = app(name)
    try:
        chosen, config, _ = commandline.parse(own, list(arguments), {})
        if chosen.device == "cuda" and no_cuda():
            return
        own.fill_in(config, chosen, ranks)
        launch.check(own, config, chosen, ranks)
    except USAGE as error:
        raise Refusal(str(error)) from None


def target(name: str, arguments: Sequence[str], ranks: int) -> tuple[str, str, str, int]:
    """(app, problem, method, ranks), by which predictions name a run; `check` must accept its command line."""
    own, chosen, config = _completed(name, arguments, ranks)
    return own.name, *_hashes(own, chosen, config), ranks


def _hashes(own: App, chosen: RunOptions, config: Any) -> tuple[str, str]:
    """The hashes of the problem and the method of complete options."""
    known = commandline.known_options(own)
    values = effective(known, Common(chosen), config)
    problem = problem_hash(own.name, of_role(known, values, "problem"))
    attributes = {"method": of_role(known, values, "method"), "options": stated(known), "config": values}
    return problem, method_hash(attributes)


def step_of(name: str, arguments: Sequence[str], ranks: int) -> tuple[Program, int] | None:
    """(what each of `ranks` ranks does in a step, as `python -m analysis price` reads it; the number of steps), without
    MPI and without a run; None if the application has no plan of its steps. `check` must accept its command line. It
    may take seconds. Raises Refusal if these options have no plan."""
    own, chosen, config = _completed(name, arguments, ranks)
    if (priceable := own.part("priceable")) is None:
        return None
    try:
        program, steps = priceable(config, chosen, ranks)
    except (*USAGE, ImportError) as error:
        raise Refusal(str(error)) from None
    problem, method = _hashes(own, chosen, config)
    return msgspec.structs.replace(program, app=own.name, problem=problem, method=method), steps


def _completed(name: str, arguments: Sequence[str], ranks: int) -> tuple[App, RunOptions, Any]:
    """(the application, the common options, its own options), as a run on `ranks` ranks completes them."""
    own = app(name)
    chosen, config, _ = commandline.parse(own, list(arguments), {})
    own.fill_in(config, chosen, ranks)
    return own, chosen, config


@cache
def no_cuda() -> str | None:
    return environment.no_cuda()
