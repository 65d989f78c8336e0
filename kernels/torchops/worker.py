"""The process that audits: `python -m kernels.torchops.worker` answers a request per line, so that a case that
crashes or hangs takes this process along and not the one who asked.

    {"what": "audit", "case": {"operation": ..., "direction": ..., "factors": {...}}, "seed": 1, "device": "cpu",
     "runs": 12}
    {"what": "audit", "file": "mine.py:function", "direction": "forward", ...}       a user's function
    {"what": "digest", ...}                                                          the first call alone

    ready                                                    first of all
    {"calls": 12, "seconds": 3.1}                            at times, while it works: calls so far, and what they took
    {"outcome": "done", "seconds": 0.2, "audit": {...}}      or "refused" with the "error" of torch or of the function,
                                                             or "nothing", with why there is no number to compare
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

DONE, REFUSED, NOTHING = "done", "refused", "nothing"
TELL_S = 0.25  # between two lines of how far it is

Tell = Callable[[dict[str, Any]], None]


def answer(request: dict[str, Any], tell: Tell = lambda line: None) -> dict[str, Any]:
    """What a request comes to; errors of torch and of a user's function are answers too. `tell` hears how far it is."""
    from kernels.torchops.audit import Plan, audit, first_digest
    from kernels.torchops.calls import Nothing
    from kernels.torchops.cases import find  # noqa: F401 - before a user's directory can hide what they import
    from kernels.torchops.own import importable
    from kernels.torchops.results import taken_apart

    begin = time.perf_counter()
    file = request.get("file")
    try:
        with importable(file.rpartition(":")[0]) if file else contextlib.nullcontext():
            case, direction, name, effects, hint = _case(request)
            arguments = (case, direction, name, request["seed"])
            if request["what"] == "digest":
                record: dict[str, Any] = {"digest": first_digest(*arguments, device=request["device"])}
            else:
                plan = Plan(runs=request["runs"])
                record = audit(*arguments, plan=plan, device=request["device"], ended=_progress(tell))
                _hint(record, hint)
            record["inputs"] = taken_apart(case.tensors, "inputs").digest()
        reply = {"outcome": DONE, "audit": record} | ({"effects": effects} if effects else {})
    except Nothing as nothing:
        reply = {"outcome": NOTHING, "error": str(nothing)}
    except Exception as error:  # whatever a function under audit raises is the finding
        reply = {"outcome": REFUSED, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
    return reply | {"seconds": time.perf_counter() - begin}


def _progress(tell: Tell) -> Callable[[float], None]:
    """What hears of every call that has ended, and tells of them at times."""
    calls, told, begin = 0, 0.0, time.perf_counter()

    def ended(_: float) -> None:
        nonlocal calls, told
        calls += 1
        if (now := time.perf_counter()) - told >= TELL_S:
            told = now
            tell({"calls": calls, "seconds": now - begin})

    return ended


def _hint(record: dict[str, Any], hint: str) -> None:
    """Add which other arguments may have samples to what failed, or lies far apart, with parts of a batch. Where no
    part could be tried, the position says nothing either: what belongs to a sample may not have moved with it."""
    failed = record["not_tried"]
    if not hint:
        return
    if "batch" in failed and "position" in record:
        del record["position"]
        failed["position"] = "no size of the batch could be tried, so that samples may not be independent"
    for change in ("batch", "position"):
        if change in failed:
            failed[change] += f"; {hint}"
        elif change in record:
            record[change]["hint"] = hint


def _case(request: dict[str, Any]):
    """(prepared, direction, name, effects, hint) of the case that is asked for."""
    from kernels.torchops.cases import find
    from kernels.torchops.cases.inputs import Draw
    from kernels.torchops.cases.operation import Case

    seed = request["seed"]
    if "file" in request:
        from kernels.torchops.own import batch_hint, load, looked_at

        name, direction = request["file"], request["direction"]
        own = load(name, seed)
        looked = looked_at(own, direction, request["device"], name, seed)
        return looked[0], direction, name, looked[1], batch_hint(own)
    spec = request["case"]
    factors = {key: tuple(v) if isinstance(v, list) else v for key, v in spec["factors"].items()}
    case = Case(spec["operation"], spec["direction"], factors)
    built = find(case.operation).build(Draw(case.name, seed), **factors)
    return built, case.direction, case.name, None, ""


def main() -> None:
    """Answer requests until there are no more."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a function prints goes to the log
    warnings.simplefilter("ignore")  # torch's own, of the deterministic mode and of types on their way out
    import torch

    def tell(line: dict[str, Any]) -> None:
        replies.write(json.dumps(line) + "\n")
        replies.flush()

    torch.set_num_interop_threads(1)
    replies.write("ready\n")  # imports take seconds, which belong to no request
    replies.flush()
    for line in sys.stdin:
        tell(answer(json.loads(line), tell))


if __name__ == "__main__":
    main()
