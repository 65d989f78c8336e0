"""Times the planning and pricing of a step by the number of devices: gpt of 96 layers, from text to price."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness.launching import output_of
from benchmarks.harness.results import add_quiet
from benchmarks.predict.published import MACHINE

DEVICES = (64, 512, 4096)
NODE = 8
SIZES = {
    "layers": 96,
    "width": 12288,
    "heads": 96,
    "feedforward": 49152,
    "tokens": 2048,
    "ff": 8,
    "vocabulary": 51200,
}


def growth(options) -> list[dict]:
    """A row per number of devices: seconds of graph, plan, program and price, each in one process from its start."""
    rows = []
    for devices in DEVICES:
        command = [sys.executable, "-m", "benchmarks.predict.growth", str(devices)]
        parts = json.loads(output_of(command, cwd=None).splitlines()[-1])
        total = sum(parts.values())
        rows.append(
            {"part": "growth", "what": f"gpt of 96 layers on {devices:,} devices, s", "error": total, "floor": None,
             "bias": None, "inside": None, "runs": 1, "best": 0, "compared": 0, "targets": 1, "rounds": 1, "busy": 0,
             "devices": devices, **{f"{name}_s": seconds for name, seconds in parts.items()}, "raw": [total]}
        )  # fmt: skip
    return rows


def main() -> None:
    """Prints the seconds of each part for a number of devices."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predict.growth", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("devices", type=int)
    add_quiet(parser)
    devices, begin = parser.parse_args().devices, time.perf_counter()
    from miniapps.partition import models
    from miniapps.partition.capture.shapes import graph_of
    from miniapps.partition.cuts.mesh import parse
    from miniapps.partition.graphs.flops import model_flops
    from miniapps.partition.planning.recipes import deck_of, plan_of
    from miniapps.partition.pricing.program import program_of
    from miniapps.untrusted.program import to_json

    parts = {}

    def passed(name: str) -> None:
        nonlocal begin
        now = time.perf_counter()
        parts[name], begin = now - begin, now

    model, groups = models.model("gpt"), devices // NODE
    sizes = SIZES | {"samples": groups, "batch": groups}
    deck = deck_of(model, {name: str(n) for name, n in sizes.items()})
    graph, carriers = graph_of(model, deck), model.RECIPES["dp+tp"]
    passed("graph")
    plan = plan_of(model, deck, graph, list(carriers))
    passed("plan")
    mesh = parse(f"data={groups},model={NODE}", carriers, devices)
    program = program_of(plan, mesh, "none", f"on {devices} devices", model_flops(graph))
    passed("program")
    with tempfile.TemporaryDirectory() as directory:
        saved, machine = Path(directory) / "plan.json", Path(directory) / "machine.toml"
        saved.write_bytes(to_json(program))
        # Weights of 96 layers on 8 devices are more than one of them holds: only the time counts here.
        machine.write_text(MACHINE.read_text().replace("capacity = 80e9", "capacity = 80e12"))
        output_of(
            [sys.executable, "-m", "analysis", "price", str(saved), "--machine", str(machine)], cwd=None
        )
    passed("price")
    print(json.dumps(parts))


if __name__ == "__main__":
    main()
