"""What `python -m analysis price` says of programs, in another process: the analysis reads traces, and this suite's
applications do not."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from miniapps.errors import UsageError
from miniapps.partition.showing.explain import table
from miniapps.system.environment import without_rank
from miniapps.system.python import module
from miniapps.untrusted.program import Program, to_json

PARTS = ("compute", "overhead", "communication", "overlapped", "waiting")  # of a step


def priced(
    programs: Sequence[Program], calibrations: Sequence[str], machine: str | None = None, clock: str = "wall",
    ledger: str | None = None, kernels: str = "first",
) -> dict[str, Any]:  # fmt: skip
    """The document of the command, with these values of its options. Rows of the ledger are in the order of the
    document's plans; rows have no `file`, since the files of the programs are gone. Raises UsageError with the
    command's message."""
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for number, program in enumerate(programs):
            paths.append(Path(directory) / f"{number}.json")
            paths[-1].write_bytes(to_json(program))
        given = [word for path in calibrations for word in ("--calibration", path)]
        given += ["--machine", machine] if machine else []
        given += ["--ledger", ledger] if ledger else []
        words = ["price", *map(str, paths), *given, "--clock", clock, "--kernels", kernels, "--json"]
        ended = subprocess.run(
            module("analysis", *words),
            env=without_rank("SLURM_", "RANK", "WORLD_SIZE"), capture_output=True, text=True, check=False,
        )  # fmt: skip
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"fpna price ended with exit code {ended.returncode}"]
        raise UsageError(lines[-1].removeprefix("analysis: "))
    document = json.loads(ended.stdout)
    for name in ("plans", "unpriced"):
        for row in document["tables"][name]:
            del row["file"]
    return document


def lines_of(document: dict[str, Any], most: int | None = None) -> list[str]:
    """The sentences, a table of the plans, at most the first `most`, and the notes."""
    heads = ("plan", "guarantee", "ms", "80 % of it", "kernels", "between", "messages", "overlapped", "waiting", "MB",
             "distinguished")  # fmt: skip
    rows = [
        (
            row["title"],
            row["guarantee"],
            _ms(row["p50_s"]),
            "unknown" if row["p10_s"] is None else f"{_ms(row['p10_s'])} to {_ms(row['p90_s'])}",
            *(_ms(row[f"{part}_s"]) for part in PARTS),
            f"{row['memory_bytes'] / 1e6:,.1f}",
            "yes" if row["told"] else "no",
        )
        for row in document["tables"]["plans"][:most]
    ]
    left = len(document["tables"]["plans"]) - len(rows)
    more = [f"{left} slower plans are in --json."] * (left > 0)
    return [*document["sentences"], "", *table(heads, rows), "", *more, *document["notes"]]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}"
