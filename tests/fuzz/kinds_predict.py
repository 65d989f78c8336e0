"""Kinds that damage the inputs of predictions: calibrations, machines, and files of predictions that plans show."""

from __future__ import annotations

import functools
import json
import random
import shutil
from pathlib import Path
from unittest import mock

from analysis.__main__ import main
from analysis.predict.reading.measured import hash_of_run
from miniapps.trace import Tracer
from miniapps.trace.schema import COLLECTIVE, COMPUTE, OTHER, rank_file
from tests.analysis.predict_programs import REDUCTION, write_program
from tests.analysis.predict_runs import predicted
from tests.analysis.synthetic import Clock, attributes, write_result
from tests.fuzz import mutate
from tests.fuzz.base import Base
from tests.fuzz.forge import craft_any
from tests.fuzz.kinds_inputs import CAMPAIGN, _jobs, _text
from tests.fuzz.sandbox import Sandbox, Violation, clear, fresh

MACHINE = "cores = 4\nspeed = 2\nmemory = 2e10\nlatency = 2e-6\nbandwidth = 1e10\n"
ROUNDS = 4


def calibration(rng: random.Random, base: Base) -> str:
    """A calibration is damaged or forged: predictions are those of the good one, or it is refused with a sentence."""
    place, good = _calibrated(base)
    box = fresh(base.case)
    shutil.copytree(place, box.runs / "study")
    outside = base.put_outside(box)
    path = rng.choice(sorted((box.runs / "study" / "cal").glob("rank-*.h5")))
    how = rng.random()
    forged = how >= 0.6
    if how < 0.05:
        box.note(mutate.replace(rng, path, outside))
    elif forged:
        box.note(craft_any(rng, path, outside))
    else:
        box.note(mutate.damage(rng, path))
    same = hash_of_run(place / "cal") == _hash(box.runs / "study" / "cal")
    answer = _predict(box)
    if answer.code == 2 and not answer.err.strip():
        raise Violation("refused without a word")
    if answer.code not in (0, 2):
        raise Violation(f"exit code {answer.code}: {answer.err[-500:]}")
    if answer.code == 0 and answer.out != good and not forged:
        raise Violation(f"another prediction by a damaged calibration: {answer.out[:500]}")
    return "damaged" if answer.code else "same" if same else "free"


def machine(rng: random.Random, base: Base) -> str:
    """The file of a machine is no TOML, or describes what there is not."""
    place, _ = _calibrated(base)
    box = fresh(base.case)
    shutil.copytree(place, box.runs / "study")
    answer = _predict(box, "--machine", str(_text(rng, box, "machine.toml", MACHINE)))
    if answer.code not in (0, 2) or (answer.code and not answer.err.strip()):
        raise Violation(f"exit code {answer.code}: {answer.err[-500:]}")
    return "damaged" if answer.code else "free"


def prediction(rng: random.Random, base: Base) -> str:
    """A prediction that a plan is to show is no JSON, or none of this version."""
    box = fresh(base.case)
    campaign = box.runs / "campaign.toml"
    campaign.write_text(CAMPAIGN)
    content = predicted(10.0).as_dict()
    if rng.random() < 0.5:
        path = box.runs / "prediction.json"
        path.write_text(json.dumps(mutate.value(rng, content)))
        box.note(path.read_text()[:400])
    else:
        path = _text(rng, box, "prediction.json", json.dumps(content, indent=1))
    with box.watched():
        answer = box.say(lambda: _jobs(["plan", str(campaign), "--predictions", str(path)]))
    if answer.code not in (0, 2) or (answer.code and not answer.err.strip()):
        raise Violation(f"exit code {answer.code}: {answer.err[-500:]}")
    return "damaged" if answer.code else "free"


def _hash(run: Path) -> str:
    """Of the trace files of a run; empty where they cannot be read."""
    try:
        return hash_of_run(run)
    except Exception:  # whatever was done to them
        return ""


def _predict(box: Sandbox, *more: str):
    study = box.runs / "study"
    words = ["predict", str(study / "run"), "--calibration", str(study / "cal"), "--ranks", "2", "--replays", "5",
             "--any-machine", *more]  # fmt: skip
    with box.watched():
        return box.say(lambda: main(words))


@functools.cache
def _calibrated(base: Base) -> tuple[Path, str]:
    """A run, a calibration on two ranks, and what is predicted from them."""
    place = base.runs / "calibrated"
    clear(place)
    write_program(place / "run")
    _write_calibration(place / "cal")
    box = fresh(base.case)
    shutil.copytree(place, box.runs / "study")
    answer = _predict(box)
    if answer.code:
        raise RuntimeError(answer.err)
    return place, answer.out


def _write_calibration(out: Path) -> None:
    """Sums of two ranks and of each alone, copies in memory, and windows of noise, round after round."""
    out.mkdir()
    regions = [(f"allreduce.direct:1:{where}", p) for where, p in (("together", 2), ("alone", 1))]
    stated = {name: REDUCTION | {"region": name, "ranks": ranks} for name, ranks in regions}
    for rank in range(2):
        clock = Clock()
        with mock.patch("time.perf_counter_ns", clock):
            given = attributes(rank, 2, "none", "direct", app="calibrate", run_id="cal", reductions=stated,
                               options={"calibrate.what": {"effect": "machine"}})  # fmt: skip
            tracer = Tracer(out / rank_file(rank), given, size=2)
            names = {name: tracer.name(name, COLLECTIVE) for name, _ in regions} | {
                "noise": tracer.name("noise", OTHER),
                "memory": tracer.name("memory.copy", COMPUTE),
            }
            step = 0
            for _ in range(ROUNDS):
                for name, ranks in regions:
                    step += 1
                    tracer.at(0, step)
                    counts = {"messages": ranks - 1.0, "bytes": 8.0 * ranks - 8.0, "additions": ranks - 1.0}
                    for key, x in ({"length": 1.0, "ranks": ranks, "cpu": 1e-5} | counts).items():
                        tracer.value(key, x)
                    for _ in range(3):
                        begin = clock.now
                        clock.spend(0.05 * ranks)
                        tracer.event(names[name], begin, 8)
                step += 1
                tracer.at(0, step)
                tracer.value("length", 1e6)
                begin = clock.now
                clock.spend(1.0)
                tracer.event(names["memory"], begin, 8_000_000)
                step += 1
                tracer.at(0, step)
                begin = clock.now
                clock.spend(1.0)
                tracer.event(names["noise"], begin)
                tracer.value("noise", 0.9)
            tracer.close()
    write_result(out)
