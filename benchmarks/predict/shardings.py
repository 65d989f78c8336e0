"""Finds the fastest sharding of DLRM's tables by prices alone, and compares with a run of every sharding priced whole.

For each number of ranks and guarantee: calibrate with the space of `dlrm`, draw sizes, compare their shardings (`fpna
sharding`), then run the plans that it priced, and some with mixed shardings. The figures are those of `ranking`.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.predict.plans import SPACES
from benchmarks.predict.ranking import LEVELS, RANKS, SEED, choice, measured, medians, summary
from benchmarks.predict.rounds import calibrated
from kernels.progress import Progress

MIXED = 3  # plans with a sharding drawn for each table


def shardings(options) -> list[dict]:
    """A row per number of ranks and guarantee."""
    rows, progress = [], Progress("predict", quiet=options.quiet)
    with tempfile.TemporaryDirectory() as directory:
        for ranks in options.ranks or RANKS:
            progress.show(0.0, f"shardings on {ranks}")
            choices = of_ranks(Path(directory) / str(ranks), ranks, options)
            for level in LEVELS:
                own = [each for each in choices if each["level"] == level]
                rows.append(summary(f"shardings, {level}", ranks, own) | {"part": "shardings"})
    progress.clear()
    return rows


def of_ranks(scratch: Path, ranks: int, options) -> list[dict]:
    """Calibrates, compares the shardings of each drawn size, then runs them; returns a choice per size and
    guarantee."""
    from miniapps.calibrate.plans import space_of
    from miniapps.dlrm.choosing import compare
    from miniapps.dlrm.drawn import program
    from miniapps.untrusted.program import to_json

    scratch.mkdir()
    sizes = " ".join(word for word in SPACES["dlrm"].split()[1:] if "=" in word)
    calibrations = list(calibrated(scratch, f"dlrm {sizes} ranks={ranks}", ranks, options))
    rng = np.random.default_rng([SEED, ranks])
    drawn_of: dict[tuple[int, str], dict[str, str]] = {}  # of each choice, {plan: sharding}
    files: list[Path] = []
    for number in range(options.sizes):
        for level in LEVELS:
            space = space_of(f"dlrm mixed {sizes} ranks={ranks} guarantee={level}")
            mixed = [space.draw(rng)]
            of_same = space_of(str(replace(mixed[0], sharding="mixed")))
            mixed += [of_same.draw(rng) for _ in range(MIXED - 1)]
            config, how = mixed[0].configured()
            found = compare(config, how, ranks, calibrations)
            steps = [replace(mixed[0], sharding=text) for text in found.shardings.values()]
            for step in (*steps, *mixed):
                own = drawn_of.setdefault((number, level), {})
                if str(step) not in own:
                    own[str(step)] = step.sharding
                    files.append(scratch / f"{len(files)}.json")
                    files[-1].write_bytes(to_json(program(step)))
    found = medians(files, calibrations)
    times = measured([text for own in drawn_of.values() for text in own if text in found], ranks)
    return [choice(level, own, found, times) for (_, level), own in drawn_of.items()]
