"""The process that audits: `python -m kernels.torchops.worker` answers a request per line, so that a case that
crashes or hangs takes this process along and not the one who asked.

    {"what": "audit", "case": {"operation": ..., "direction": ..., "factors": {...}}, "seed": 1, "device": "cpu",
     "runs": 12}
    {"what": "audit", "file": "mine.py:function", "direction": "forward", ...}       a user's function
    {"what": "digest", ...}                                                          the first call alone

    ready                                                    first of all
    {"outcome": "done", "seconds": 0.2, "audit": {...}}      or "refused" with the "error" of torch or of the function
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import Any

DONE, REFUSED = "done", "refused"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What a request comes to; errors of torch and of a user's function are answers too."""
    from kernels.torchops.audit import Plan, audit, first_digest

    begin = time.perf_counter()
    try:
        case, direction, name, effects = _case(request)
        arguments = (case, direction, name, request["seed"])
        if request["what"] == "digest":
            record: dict[str, Any] = {"digest": first_digest(*arguments, device=request["device"])}
        else:
            record = audit(*arguments, plan=Plan(runs=request["runs"]), device=request["device"])
        reply = {"outcome": DONE, "audit": record} | ({"effects": effects} if effects else {})
    except Exception as error:  # whatever a function under audit raises is the finding
        reply = {"outcome": REFUSED, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
    return reply | {"seconds": time.perf_counter() - begin}


def _case(request: dict[str, Any]):
    """(prepared, direction, name, effects) of the case that is asked for."""
    from kernels.torchops.cases.inputs import Draw
    from kernels.torchops.cases.operations import Case, find

    seed = request["seed"]
    if "file" in request:
        from kernels.torchops.own import load, looked_at

        name, direction = request["file"], request["direction"]
        looked = looked_at(load(name, seed), direction, request["device"], name, seed)
        return looked[0], direction, name, looked[1]
    spec = request["case"]
    factors = {key: tuple(v) if isinstance(v, list) else v for key, v in spec["factors"].items()}
    case = Case(spec["operation"], spec["direction"], factors)
    built = find(case.operation).build(Draw(case.name, seed), **factors)
    return built, case.direction, case.name, None


def main() -> None:
    """Answer requests until there are no more."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a function prints goes to the log
    warnings.simplefilter("ignore")  # torch's own, of the deterministic mode and of types on their way out
    import torch

    torch.set_num_interop_threads(1)
    replies.write("ready\n")  # imports take seconds, which belong to no request
    replies.flush()
    for line in sys.stdin:
        replies.write(json.dumps(answer(json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
