"""The table and the JSON file of an all-reduce measurement, and the merge of several launches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.allreduce.cells import LIBRARY
from benchmarks.allreduce.model import Point, fit
from benchmarks.allreduce.statistics import against, figures
from kernels.guarantees import ChoiceError

FORMAT = 2
# Keys in which launches must agree to be merged.
SAME = ("size", "dtype", "op", "accumulate", "distribution", "contributions", "mpi")
TIMES = ("t_min", "t_avg", "t_max", "median", "p99")


def result(cells: list[dict], about: dict, syncs: list[dict]) -> dict:
    """The result of measured cells, as written to JSON.

    A cell has `ordering`, `bytes`, `counts` (along the rounds messages, bytes and additions, then messages and bytes
    across nodes; None without a schedule) and `rounds`. `about` has the keys of SAME and the machine; `syncs` says how
    the ranks of each launch started.
    """
    base = {cell["bytes"]: cell["rounds"] for cell in cells if cell["ordering"] == LIBRARY}
    rows = []
    for cell in sorted(cells, key=lambda c: c["bytes"]):
        row = cell | figures(cell["rounds"], cell["bytes"], about["size"])
        row["ratio"] = against(cell["rounds"], base[cell["bytes"]]) if cell["bytes"] in base else None
        rows.append(row)
    points = {
        i: Point(row["bytes"], tuple(row["counts"]), row["median"])
        for i, row in enumerate(rows)
        if row["counts"] and row["median"]
    }
    model = fit(list(points.values()))
    for i, row in enumerate(rows):
        row["model"] = model.seconds(points[i]) if model and i in points else None
        row["rounds"] = row.pop("rounds")  # last in the file
    return {
        "title": "allreduce",
        "format": FORMAT,
        "about": about,
        "syncs": syncs,
        "model": model.record() if model else None,
        "rows": rows,
    }


def merge(results: Sequence[dict]) -> dict:
    """Merges launches into one result with the rounds of all, one launch after the other.

    Raises ChoiceError if their settings, orderings or sizes differ.
    """
    first = results[0]["about"]
    for other in (r["about"] for r in results[1:]):
        for key in SAME:
            if other[key] != first[key]:
                raise ChoiceError(
                    f"launches differ in {key}: {first[key]!r} and {other[key]!r}; merge them separately"
                )
    listed = [sorted((row["ordering"], row["bytes"]) for row in r["rows"]) for r in results]
    if any(cells != listed[0] for cells in listed[1:]):
        raise ChoiceError("launches measured different orderings or sizes; give all of them the same options")
    cells = []
    for row in results[0]["rows"]:
        key = row["ordering"], row["bytes"]
        same = [r for one in results for r in one["rows"] if (r["ordering"], r["bytes"]) == key]
        cells.append(
            {k: row[k] for k in ("ordering", "bytes", "counts")}
            | {"rounds": [visit for r in same for visit in r["rounds"]]}
        )
    return result(cells, first | {"launches": len(results)}, [s for r in results for s in r["syncs"]])


def read(path: str) -> dict:
    """Reads a result from a JSON file. Raises ChoiceError for other files."""
    try:
        summary = json.loads(Path(path).read_text())
    except OSError as error:
        raise ChoiceError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise ChoiceError(f"{path} is not JSON") from None
    if (
        not isinstance(summary, dict)
        or summary.get("title") != "allreduce"
        or summary.get("format") != FORMAT
    ):
        raise ChoiceError(f"{path} is not a result of benchmarks.allreduce in format {FORMAT}")
    return summary


def write(summary: dict, path: str) -> None:
    """Writes a result as JSON, a line per row."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps({k: v for k, v in summary.items() if k != "rows"}, indent=1)
    rows = ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in summary["rows"])
    Path(path).write_text(head.removesuffix("\n}") + f',\n "rows": [\n{rows}\n ]\n}}\n')


def text(summary: dict) -> str:
    """The table, with the settings of the measurement and an explanation."""
    about = summary["about"]
    machine = about["machine"]
    lines = [
        f"all-reduce: {about['op']} of {about['distribution']} {about['dtype']}, {about['size']} ranks, "
        f"{about['contributions']} contribution{'s' * (about['contributions'] > 1)} each, "
        f"accumulated in {about['accumulate']}; {about['launches']} launch{'es' * (about['launches'] > 1)}",
        f"{about['mpi']}; {about['node_count']} node{'s' * (about['node_count'] > 1)}, {machine['cores']} cores, "
        f"{machine['cpu']}",
        *dict.fromkeys(map(_sync_text, summary["syncs"])),
        "times in us, [95 % interval of the median]; algbw, busbw in GB/s, of the median; "
        "ratio: to `library`, the MPI library's own Allreduce, by rounds (least to most)",
    ]
    if about["size"] == 1:
        lines.append("one rank: there is no communication, so ratios and bandwidths are meaningless")
    lines += [f"left out: {reason}" for reason in about.get("left_out", ())]
    lines += ["", *_columns(summary["rows"]), "", _model_text(summary["model"], about["node_count"] > 1)]
    return "\n".join(lines)


def _sync_text(sync: dict) -> str:
    if sync["method"] == "barrier":
        return f"start: behind a barrier ({sync['reason']}); time: the longest of a rank by its own clock"
    worst, drift = max(sync["bounds"]), max(map(abs, sync["drifts"]))
    return (
        f"start: windows of a common clock, known to within {worst * 1e6:.2f} us (drift {drift * 1e6:.2f} us/s); "
        "time: from the common start to the last rank's end; `late`: repetitions left out"
    )


def _model_text(model: dict | None, across: bool) -> str:
    if model is None:
        return "model: too few measurements of orderings with a schedule to fit one"
    lines = [
        f"model: alpha x messages + beta x bytes + gamma x additions; median error {model['error']:.0%}, "
        f"{model['verdict']}"
    ]
    bounds = [0, *(p["upto"] for p in model["pieces"])]
    for piece, above in zip(model["pieces"], bounds, strict=False):
        where = f"up to {size_text(piece['upto'])}" if piece["upto"] else f"above {size_text(above)}"
        where = "" if len(model["pieces"]) == 1 else f" ({where})"
        lines.append(
            f"  alpha {piece['alpha'] * 1e6:.3g} us, beta {piece['beta'] * 1e9:.3g} ns/byte, "
            f"gamma {piece['gamma'] * 1e9:.3g} ns/addition{where}"
        )
        if across:
            lines.append(
                f"  from node to node: alpha {piece['alpha_across'] * 1e6:.3g} us, beta "
                f"{piece['beta_across'] * 1e9:.3g} ns/byte"
            )
    return "\n".join(lines)


HEAD = (
    "bytes", "ordering", "repetitions", "late", "t_min", "t_avg", "t_max", "median", "interval", "p99",
    "algbw", "busbw", "#wrong", "ratio", "model",
)  # fmt: skip


def _columns(rows: list[dict]) -> list[str]:
    cells = [list(HEAD)]
    for row in rows:
        times = {k: _us(row[k]) for k in TIMES}
        low, high = row["interval"] or (None, None)
        ratio = row["ratio"]
        cells.append(
            [
                str(row["bytes"]),
                row["ordering"],
                str(row["repetitions"]),
                str(row["late"]),
                *(times[k] for k in ("t_min", "t_avg", "t_max", "median")),
                f"[{_us(low)}, {_us(high)}]",
                times["p99"],
                *("-" if row[k] is None else f"{row[k] / 1e9:.3f}" for k in ("algbw", "busbw")),
                "-" if row["wrong"] is None else str(row["wrong"]),
                f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})" if ratio else "-",
                _us(row["model"]),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = HEAD.index("ordering")
    return [
        "  ".join(
            c.ljust(w) if k == left else c.rjust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]


def _us(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    value = seconds * 1e6
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def size_text(nbytes: int) -> str:
    """4194304 as 4 MiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} bytes"
