"""`python -m analysis sharding`. It is no study, since it needs a file of times, and chooses the next run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, require_directory
from analysis.errors import Usage
from kernels.as_json import Document, rows

SUMMARY = "which sharding of tables of embeddings will be the fastest, and which cannot be told from it"
DETAIL = """\
What the steps of a run ask of each table, which `dlrm` records, is priced by steps of random tables
that were timed on as many ranks (mpirun -n P python -m miniapps.embeddings FILE). All shardings of all tables are
searched. --out writes the fastest for `dlrm --sharding auto --choice FILE`. See docs/explanation/dlrm.md."""
EXAMPLES = """\
  python -m analysis sharding runs/dlrm --times lookups.json
  python -m analysis sharding runs/dlrm --times lookups.json --out choice.json"""
CLOCKS = ("cpu", "wall")

DOCUMENTS = {
    "sharding": Document(
        rows=(
            rows(
                "shardings",
                "up to ten, the fastest first ([what they say](../explanation/dlrm.md#the-fastest-sharding))",
                """
            sharding | text | as `--sharding` takes it
            seconds low high | number, s | for the tables in a step; 80 % of it
            apart | boolean | whether it can be told from the first
            """,
            ),
        )
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs=1, metavar="RUN")
    parser.add_argument("--times", metavar="FILE", help="timed steps, on the ranks to choose for")
    parser.add_argument("--clock", choices=CLOCKS, default="cpu", help="of the timed steps (%(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the fastest sharding there, as JSON")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """Predicts the ten fastest shardings; --out writes the first."""
    import pandas as pd

    from analysis.load.find import find_runs
    from analysis.load.guard import read_run
    from analysis.page.sections import Table
    from analysis.predict.choices import sharding
    from miniapps.untrusted.lookups import read_measured
    from miniapps.untrusted.regular import Refused

    require_directory("--csv", options.csv)
    if options.out is not None:
        _require_file(options.out, options.times)
    paths = find_runs(options.runs)
    if len(paths) != 1:
        raise Usage(f"{len(paths)} runs: give one run; its trace has the lookups of the tables")
    if options.times is None:
        raise Usage(
            "--times FILE is missing: time steps by mpirun -n P python -m miniapps.embeddings FILE, on the ranks to "
            "choose for"
        )
    try:
        measured = read_measured(options.times)
        model = sharding.fitted(measured, options.clock)
    except Refused as error:
        raise Usage(f"--times {error}") from None
    except (OSError, ValueError) as error:
        raise Usage(f"--times {options.times}: {getattr(error, 'strerror', None) or error}") from None
    trace = next(iter(read_run(paths[0], tables=["values"])))
    try:
        loads = sharding.loads(trace, str(paths[0]))
    except Refused as error:
        raise Usage(str(error)) from None
    if not loads:
        raise Usage(f"{paths[0]}: it recorded no lookups of tables; give a run of dlrm")
    names = sharding.options(model.ranks, model.order, trace.attributes["guarantee"] in ("layout", "exact"))
    answer = sharding.fastest(model, loads, names)
    shardings = [sharding.in_words([names[option] for option in each.options]) for each in answer.best]
    frame = pd.DataFrame(
        {"sharding": shardings}
        | {key: [getattr(each, key) for each in answer.best] for key in ("seconds", "low", "high", "apart")}
    )
    best = answer.best[0]
    alike = sum(not each.apart for each in answer.best) - 1
    said = Bold(
        f"Predicted to be the fastest on {model.ranks} rank{'s' * (model.ranks > 1)}: {shardings[0]}, "
        f"{_ms(best.seconds)} ms for the tables in a step (80 %: {_ms(best.low)} to {_ms(best.high)} ms); {alike} of "
        f"the next {len(shardings) - 1} cannot be told from it."
    )
    lines = [
        (text, _ms(each.seconds), f"{_ms(each.low)} to {_ms(each.high)}", "yes" if each.apart else "no")
        for text, each in zip(shardings, answer.best, strict=True)
    ]
    columns = ("sharding", "ms", "80 % of it", "told from the first")
    shown: list[Part] = [said, ("Fastest shardings", Table(columns, lines, numbers=("ms", "80 % of it")))]
    looked = "the search is exact" if answer.exact else "there are too many to be sure of the first"
    notes = [
        f"Note: {model.steps} timed steps on {model.ranks} ranks ({options.clock} time); a prediction is off by "
        f"{100 * model.rates.spread:.0f} %, the ratio of two by {100 * model.rates.apart:.0f} % (standard deviations); "
        f"of {len(names)} shardings for each of {len(loads)} tables {looked}."
    ]
    if (own := _cpu(trace)) != measured.cpu:
        notes.append(
            f"Note: the steps were timed on another processor ({measured.cpu}) than the run had ({own})."
        )
    files = []
    if options.out is not None:
        content = {
            "format": "fpna-sharding", "schema": 1, "ranks": model.ranks, "sharding": shardings[0],
            "tables": [(load.name, load.rows) for load in loads], "seconds": best.seconds,
        }  # fmt: skip
        try:
            options.out.write_text(json.dumps(content))
        except OSError as error:
            raise Usage(
                f"--out {options.out}: cannot be written: {error.strerror}; name another file"
            ) from None
        files.append(str(options.out))
        notes.append(f"Chosen: {options.out}")
    return Answer(None, {"shardings": frame}, shown, notes, files=files)


def _require_file(out: Path, times: str | None) -> None:
    if not out.parent.is_dir() or (out.exists() and not out.is_file()):
        raise Usage(f"--out {out}: not a file in a directory that exists; name one")
    if times is not None and out.resolve() == Path(times).resolve():
        raise Usage(f"--out {out}: that is the file of --times, which would be lost; name another")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _cpu(trace) -> str:
    environment = trace.attributes.get("environment")
    return str(environment.get("cpu", "")) if isinstance(environment, dict) else ""
