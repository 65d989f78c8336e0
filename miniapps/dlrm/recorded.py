"""The lookups of tables that a run of DLRM recorded, from its trace."""

from __future__ import annotations

from functools import cache

import numpy as np

from miniapps.errors import UsageError
from miniapps.trace import RankTrace, TraceError, read_run
from miniapps.trace.records import (
    ASKED,
    ASKED_CLASS,
    ASKED_COLUMNS,
    ASKED_LOOKUPS,
    ASKED_ROWS,
    ASKED_SAMPLES,
    ASKED_SHARES,
)  # fmt: skip
from miniapps.untrusted.lookups import Asked
from miniapps.untrusted.records import conform
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.text import printable

ROWS_MOST, POOLING_MOST = 2**22, 1024  # rows of a table that were looked up; rows of a bag


@cache
def read(run: str) -> tuple[Asked, ...]:
    """The lookups of each table in the directory `run`. Raises UsageError, with the remedy, if there are none, or if
    their numbers are impossible."""
    where = f"--lookups {printable(run)}"
    try:
        found = of_trace(next(read_run(run, ["values"], [0])), where)
    except Refused as error:
        raise UsageError(str(error)) from None
    except (TraceError, OSError, StopIteration) as error:
        raise UsageError(f"{where}: cannot be read: {error}; give the directory of a run of dlrm") from None
    if not found:
        raise UsageError(f"{where}: it recorded no lookups of tables; give the directory of a run of dlrm")
    return tuple(found)


def of_trace(trace: RankTrace, where: str) -> list[Asked]:
    """The lookups of each table that rank 0 recorded; empty if it recorded none. Raises Refused, with a message that
    begins with `where`, for impossible numbers."""
    values = trace.tables["values"]
    by_name: dict[str, dict[int, float]] = {}
    first = values["repeat"] == 0
    rows = zip(values["name"][first], values["block"][first], values["value"][first], strict=True)
    for name, block, value in rows:
        if (text := trace.names[name]).startswith(ASKED):
            by_name.setdefault(text, {})[int(block)] = float(value)
    names = [text.removeprefix(ASKED_ROWS) for text in by_name if text.startswith(ASKED_ROWS)]
    return [_of_table(name, by_name, where) for name in names]


def _of_table(name: str, by_name: dict[str, dict[int, float]], where: str) -> Asked:
    of_name = {prefix: sorted(by_name.get(f"{prefix}{name}", {}).items()) for prefix in ASKED}
    vectors = {prefix: np.array([value for _, value in items]) for prefix, items in of_name.items()}
    wrong = f"{where}: the record of table {printable(name)} is incomplete or has impossible numbers; leave it out"
    if not all(len(vector) and np.isfinite(vector).all() for vector in vectors.values()):
        raise Refused(wrong)
    rows, columns, samples = (float(vectors[key][0]) for key in (ASKED_ROWS, ASKED_COLUMNS, ASKED_SAMPLES))
    classes, asked = vectors[ASKED_CLASS], vectors[ASKED_LOOKUPS]
    if len(classes) != len(asked) or classes.sum() > rows or len(vectors[ASKED_SHARES]) > rows:
        raise Refused(wrong)
    if classes.sum() > ROWS_MOST or asked.sum() > POOLING_MOST * samples:
        raise Refused(
            f"{where}: table {printable(name)} has too many lookups: at most {ROWS_MOST:,} different rows, and "
            f"{POOLING_MOST:,} of a sample; record a run with a smaller --batch"
        )
    given = {
        "name": name, "rows": int(rows), "columns": int(columns), "samples": samples, "lookups": float(asked.sum()),
        "classes": list(zip(classes.tolist(), (asked / max(asked.sum(), 1e-300)).tolist(), strict=True)),
        "shares": vectors[ASKED_SHARES].tolist(),
    }  # fmt: skip
    return conform(given, Asked, where)
