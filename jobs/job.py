"""Describes the job of one batch script, independently of the scheduler."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobs.words import quoted
from miniapps.untrusted.text import printable

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
NOT_IN_PATHS = re.compile(r"[^\w@+=:,./-]")
COUNTS = ("nodes", "ranks_per_node", "threads", "seconds", "array")
# The most that jobs and campaigns may ask for: more than the largest machines have, and few enough to plan quickly.
MOST = {
    "nodes": 10**6,
    "ranks": 10**7,
    "ranks_per_node": 10**5,
    "threads": 10**5,
    "gpus_per_node": 1000,
    "seconds": 10**9,
    "array": 1000,
    "allocations": 1000,
    "repeats": 10**6,
    "retries": 1000,
    "seeds": 2**63 - 1,
    "shuffle": 2**63 - 1,
}


class JobError(ValueError):
    """An invalid job; the message names the field, the value and the allowed values."""


@dataclass(frozen=True)
class Job:
    """One batch job, or an array of equal jobs. Raises JobError for values that no scheduler accepts.

    `commands` are lines of shell, run once inside the allocation and in this order; the first that fails ends the
    job with its exit code. They may use two variables that every script exports: FPNA_ALLOCATION_ID, unique per
    allocation, and FPNA_ARRAY_INDEX, 0 to array - 1.
    """

    name: str  # letters, digits, _ - .
    nodes: int
    ranks_per_node: int
    threads: int  # cores per rank
    seconds: int  # time limit
    account: str | None  # the account to charge; `Site.needs_account`
    queue: str | None  # partition or queue; None: the site's default
    environment: str  # Python environment: a directory with bin/activate
    commands: tuple[str, ...]
    array: int = 1  # elements, which run one after another: repeats across allocations
    output: str = "."  # directory for the scheduler's output files; it must exist when the job is submitted
    gpus_per_node: int = 0
    kind: str | None = None  # of the site's kinds of nodes; None: of any kind

    def __post_init__(self):
        for field in ("name", "account", "queue"):
            value = getattr(self, field)
            if value is not None and not PLAIN.fullmatch(value):
                raise JobError(
                    f"{field} {quoted(value)}: at most 200 letters, digits, '_', '-' and '.', '-' not in front"
                )
        for field in COUNTS:
            self._whole(field, 1)
        self._whole("gpus_per_node", 0)
        if not self.environment:
            raise JobError(
                "environment: none is given; name a Python environment, a directory with bin/activate"
            )
        for field in ("environment", "output"):
            value = getattr(self, field)
            if not value or not value.isprintable():
                raise JobError(f"{field} {quoted(value)}: the path of a directory, on one line")
        # Directives have no quoting that works for the paths of all schedulers.
        if wrong := sorted(set(NOT_IN_PATHS.findall(self.output))):
            raise JobError(
                f"output {quoted(self.output)}: a directory whose path has letters, digits and '@+=:,./_-' alone, and "
                f"not {' '.join(map(quoted, wrong))}"
            )
        if not self.commands:
            raise JobError("commands: none; a job needs at least one")
        for command in self.commands:
            if printable(command, keep="\n\t") != command:
                raise JobError(
                    f"commands: {quoted(command)} has characters that a terminal would obey or hide; rename the file"
                )

    def _whole(self, field: str, least: int) -> None:
        value = getattr(self, field)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST[field]:
            raise JobError(
                f"{field} {quoted(value)}: a whole number, at least {least} and at most {MOST[field]}"
            )

    @property
    def ranks(self) -> int:
        """The number of ranks on all nodes together."""
        return self.nodes * self.ranks_per_node
