"""Certificates of audits for given cases, and the traces of their runs."""

from kernels.torchops.verdicts import verdicts
from miniapps.untrusted.certificate import CERTIFICATE, SCHEMA
from miniapps.untrusted.result import written
from tests.analysis.synthetic import write_run


def change(distinct=1, trials=9, ulp=1.0):
    """What came of a change."""
    bound = 1 - 0.05 ** (1 / trials) if distinct == 1 else None
    return {"trials": trials, "distinct": distinct, "bound": bound, "v_c": 0.5 * (distinct > 1),
            "v_ermv": 1e-7 * (distinct > 1), "ulp": ulp * (distinct > 1), "values": False}  # fmt: skip


def case(
    operation, direction="forward", runs=1, in_mode=1, throws=None, digest="0" * 32, layers=None, **changes
):
    """The record of a case; `changes` {name: results}; `throws`: the message of the deterministic mode; `layers`
    {library and level: results}."""
    by = {"by": {"1": 1, "2": runs}}
    mode = {"throws": throws, "seconds": [1e-3, None if throws else 5e-4]}
    if not throws:
        mode |= {"runs": change(in_mode) | by, "algorithm": change()}
    audit = {"digest": digest, "elements": 8, "runs": change(runs) | by, "mode": mode}
    audit |= {name: change(distinct) for name, distinct in changes.items()}
    if layers:
        audit["cpu"] = change(max(layers.values()), 1 + len(layers)) | {"by": layers}
    return {
        "name": f"{operation} {direction}", "operation": operation, "direction": direction, "factors": {},
        "documented": [f"torch.{operation}"], "outcome": "done", "seconds": 0.1, "error": None, "audit": audit,
    }  # fmt: skip


def refused(operation):
    """The record of a case that torch cannot run."""
    return case(operation) | {"outcome": "refused", "error": "RuntimeError: not here", "audit": None}


def statement(operation, does="acts", devices=("cpu",), backward=False):
    """A statement of torch's documentation."""
    return {"operation": f"torch.{operation}", "does": does, "devices": list(devices), "backward": backward,
            "keywords": {}, "text": f"torch.{operation}"}  # fmt: skip


def write_audit(out, cases, statements=(), torch="2.13.0", run_id=None, **more):
    """A run with a certificate in the new directory `out`; returns it."""
    write_run(out, size=1, app="operations", run_id=run_id or str(out))
    content = {
        "schema": SCHEMA, "device": "cpu", "seed": 1, "runs": 3, "software": {"torch": torch, "configuration": ""},
        "machine": {"cpu": "a", "cores": 2}, "statements": list(statements), "cases": list(cases), **more,
    }  # fmt: skip
    judged = [each.as_dict() for each in verdicts(statements, cases, content["device"])]
    (out / CERTIFICATE).write_text(written({"verdicts": judged} | content))
    return out
