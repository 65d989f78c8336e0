"""Predicts kernels for shapes without measurements: each fifth of a calibration's shapes from the others."""

from __future__ import annotations

import tempfile

import numpy as np

from benchmarks.predict.rounds import start

SHAPES, FOLDS = 200, 5
PLACES = {"inside": False, "outside": True}  # {place: outside the hull of the measured shapes}


def shapes(options) -> list[dict]:
    """A row per kernel and place of the predicted shapes: inside the hull of the fitted shapes, or outside."""
    from analysis.predict.costs.kernel_times import DIMS, KernelTimes
    from analysis.predict.reading.calibration import read_calibration

    rows = []
    with tempfile.TemporaryDirectory() as directory:
        out = f"{directory}/calibration"
        more = [
            "--set",
            f"calibrate.shapes={SHAPES}",
            "--what",
            "kernels",
            "--budget",
            str(8 * options.budget),
        ]
        start(["miniapps.calibrate", *more, "--out", out, "--no-progress"], 1)
        calibration = read_calibration(out)
    for region in sorted({name for name in calibration.cases["region"] if name.partition(".")[0] in DIMS}):
        cases = calibration.of(region)
        dims = list(DIMS[region.partition(".")[0]])
        columns = [cases[each].to_numpy(float) for each in (dims, "flops", "nbytes", "seconds")]
        errors, outside = np.zeros(len(cases)), np.zeros(len(cases), bool)
        for fold in range(FOLDS):
            out_of = np.arange(len(cases)) % FOLDS == fold
            model = KernelTimes(*(column[~out_of] for column in columns), region=region)
            x, flops, nbytes, seconds = (column[out_of] for column in columns)
            predicted, _, outside[out_of] = model.seconds(x, flops, nbytes)
            errors[out_of] = np.abs(np.log(predicted / seconds))
        for place, beyond in PLACES.items():
            own = errors[outside == beyond]
            rows.append(
                {"part": "shapes", "what": f"{region}, {place} the hull",
                 "error": float(np.expm1(own.mean())) if len(own) else None, "floor": calibration.spread, "bias": None,
                 "inside": None, "runs": len(own), "best": 0, "compared": 0, "targets": len(cases), "rounds": 1,
                 "busy": 0, "raw": own.tolist()}
            )  # fmt: skip
    return rows
