"""Writes the results of a campaign as files: a table with one row per run, and every figure with its points."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from analysis.export.tables import csv_text, texts
from analysis.groups import grouped
from analysis.overview import Overview
from analysis.page.svg import Figure, picture
from analysis.pairs import reference
from analysis.runs import ids, label
from analysis.verdict import UNTESTED
from kernels import bits
from miniapps.untrusted import Refused, read_bytes, records

MANIFEST = (
    "written.json"  # lists the files of the last call; the next call may overwrite or remove only these
)
COLUMNS = ["run", "repeat", "path", "run_id", "allocation_id", "started", "app", "problem", "group", "cell", "size",
           "guarantee", "ordering", "device", "seed", "method", "complete", "faulty", "last_step", "verdict",
           "state", "wall_s", "events", "tracing_s", "reference"]  # fmt: skip


class NotOurs(Exception):
    """The directory is a file, or has files of the same names that this program did not write."""


def results(overview: Overview) -> pd.DataFrame:
    """One row per (run, repeat), complete or not: COLUMNS, then `value:NAME` and `distance:NAME`.

    `verdict` is the verdict on the run's cell. `value:NAME` is the last value that the run recorded as NAME without a
    block; `distance:NAME` is its relative difference |A - B| / |A| (kernels.bits) from the run `reference`
    (RUN:REPEAT) of the same problem, NaN if either lacks it or if they ended at different steps.
    """
    runs = grouped(overview.frames.runs)
    verdicts = {cell.label: cell.verdict for group in overview.groups for cell in group.cells}
    runs["verdict"] = runs["cell"].map(verdicts).where(runs["complete"], "incomplete").fillna(UNTESTED)
    runs["reference"] = ""
    for _, same in runs.groupby(["app", "problem"], sort=False):
        chosen = overview.against if overview.against in ids(same) else reference(same)
        if chosen:
            runs.loc[same.index, "reference"] = label(chosen)
    last = _last_values(overview)
    values = (
        last.reindex(pd.MultiIndex.from_tuples(ids(runs), names=["run", "repeat"])) if len(last) else last
    )
    rows = runs[COLUMNS].copy()
    if values.empty:
        return rows
    values.index = rows.index
    steps = dict(zip(map(label, ids(runs)), runs["last_step"], strict=True))
    place = dict(zip(map(label, ids(runs)), rows.index, strict=True))
    against = [place.get(name) if steps.get(name) == step else None
               for name, step in zip(runs["reference"], runs["last_step"], strict=True)]  # fmt: skip
    base = values.reindex(against)
    distances = {
        f"distance:{name}": bits.relative_difference(base[name].to_numpy(), values[name].to_numpy())
        for name in values
    }
    pieces = [rows, values.add_prefix("value:"), pd.DataFrame(distances, index=rows.index)]
    return pd.concat(pieces, axis=1)


def _last_values(overview: Overview) -> pd.DataFrame:
    """The last value of each name without a block: (run, repeat) x names; only runs whose steps are no samples."""
    values, stepped = overview.frames.values, set(overview.stepped.runs["run"])
    whole = values[(values["block"] == -1) & values["run"].isin(stepped)]
    last = whole.groupby(["run", "repeat", "name"], observed=True, sort=False)["value"].last()
    table = last.unstack("name")
    table.index = table.index.set_levels(table.index.levels[0].astype("str"), level=0)
    table.columns = table.columns.astype("str")
    return table


def write_results(directory: Path, table: pd.DataFrame, figures: list[Figure]) -> list[str]:
    """Writes results.csv, results.parquet, and NAME.csv, NAME.svg, NAME.png of each figure; returns the file names.

    Removes files of the last call that are not written again. Raises NotOurs if `directory` is a file, or if a file of
    the same name was not written by the last call.
    """
    if directory.exists() and not directory.is_dir():
        raise NotOurs(f"{directory} is a file; give a directory")
    directory.mkdir(parents=True, exist_ok=True)
    drawn = [figure for figure in figures if figure.name]
    names = ["results.csv", "results.parquet"]
    names += [f"{figure.name}.{kind}" for figure in drawn for kind in ("csv", "svg", "png")
              if kind != "csv" or figure.data is not None]  # fmt: skip
    known = _written(directory)
    if foreign := [name for name in names if (directory / name).exists() and name not in known]:
        raise NotOurs(f"{directory}/{foreign[0]} was not written by this command; give another directory")
    for name in known - set(names):
        (directory / name).unlink(missing_ok=True)
    (directory / MANIFEST).write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")
    (directory / names[0]).write_text(csv_text(table), encoding="utf-8")
    texts(table).to_parquet(directory / names[1], index=False)
    for figure in drawn:
        if figure.data is not None:
            (directory / f"{figure.name}.csv").write_text(csv_text(figure.data), encoding="utf-8")
        (directory / f"{figure.name}.svg").write_bytes(picture(figure, "svg"))
        (directory / f"{figure.name}.png").write_bytes(picture(figure, "png"))
    return names


def _written(directory: Path) -> set[str]:
    """The files that the last call wrote, from the manifest; entries that are no plain file names are ignored."""
    try:
        names = records.loads(read_bytes(directory / MANIFEST, records.MOST), str(directory / MANIFEST))
    except FileNotFoundError:
        return set()
    except (OSError, Refused) as error:
        raise NotOurs(f"{directory / MANIFEST} cannot be read ({error}); give another directory") from error
    if not isinstance(names, list):
        return set()
    return {name for name in names if isinstance(name, str) and Path(name).name == name and Path(name).suffix}
