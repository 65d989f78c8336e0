"""Runs of all kinds, of several problems, some cut off or damaged, mixed at random: every study reads them and draws.

.venv/bin/python -m tests.analysis.mixed_studies --cases 200 [--seed 1] [--also DIR]
"""

import argparse
import random
import shutil
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from analysis import studies
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.page.words import in_words
from tests.analysis.test_studies import PROBLEMS, WRITERS


def pool(root, also):
    """The directories of all runs: those of `test_studies`, and those below `also`."""
    for name, write in WRITERS.items():
        for problem, options in PROBLEMS.items():
            write(root / name / problem, problem=problem, problem_options=options)
    places = [root, *([also] if also else [])]
    return sorted({file.parent for place in places for file in place.rglob("rank-00000.h5")})


def harmed(run, draw):
    """One thing less in the copy `run`; what it was."""
    ranks = sorted(run.glob("rank-*.h5"))
    what = draw.choice(["whole"] * 6 + ["a rank", "its result", "the end of a file"])
    if what == "a rank":
        draw.choice(ranks).unlink()
    elif what == "its result":
        (run / "result.json").unlink(missing_ok=True)
    elif what == "the end of a file":
        file = draw.choice(ranks)
        file.write_bytes(file.read_bytes()[: draw.randrange(1, file.stat().st_size)])
    return what


def case(runs, draw, found):
    """Draw some runs, and every study of them; raises what a study raises."""
    with tempfile.TemporaryDirectory() as place:
        for number, run in enumerate(draw.sample(runs, draw.randrange(1, 13))):
            copy = Path(place, f"r{number}")
            shutil.copytree(run, copy)
            found[harmed(copy, draw)] += 1
        overview = Overview(load([place], keep=False))
        for name in studies.names():
            known = overview.study(name)
            if known is None:
                continue
            found[f"study {name}"] += 1
            study = studies.study(name)
            for data in study.data:
                assert list(data.frame(known).columns) == list(data.columns)
            sections = [in_words(section, overview.words) for section in study.sections(known)]
            figures = [figure for section in sections for figure in section.figures]
            assert len({figure.name for figure in figures}) == len(figures)
            found["figures"] += len(figures)
            study.sentences(known), study.notes(known), study.facts(known), study.findings(known)
            for rule in study.rules:
                list(rule(known))
            for title, table in study.tables(known):
                assert all(len(row) == len(table.columns) for row in table.rows), title
                cells = [str(cell) for row in table.rows for cell in row]
                assert not {"nan", "None"} & set(cells), title


def main():
    """Draw the cases; prints what was met, and each failure with its seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--also", type=Path)
    options = parser.parse_args()
    found, failures = Counter(), 0
    with tempfile.TemporaryDirectory() as root:
        runs = pool(Path(root), options.also)
        for number in range(options.cases):
            try:
                case(runs, random.Random(f"{options.seed}-{number}"), found)
            except Exception:
                failures += 1
                print(f"seed {options.seed}, case {number}:\n{traceback.format_exc()}", flush=True)
    print(f"{options.cases} cases of {len(runs)} runs: {failures} failures; {dict(sorted(found.items()))}")


if __name__ == "__main__":
    main()
