"""One repeat of the operations mini-app: every case in a child process, then again in fresh child processes."""

from typing import Any

import numpy as np

from kernels import bits
from kernels.torchops.verdicts import WHAT, differs
from kernels.torchops.worker import DONE, NOTHING
from miniapps.cpus.experiment import effective
from miniapps.layout.owners import shuffled
from miniapps.operations import certificate
from miniapps.operations.cases import Chosen, chosen
from miniapps.operations.children import CRASHED, HUNG, SLOW, Child
from miniapps.operations.config import CPU
from miniapps.runner.outcome import Check, Outcome
from miniapps.system.python import snippet
from miniapps.trace.schema import COMPUTE

LOADS = tuple(
    snippet("import numpy, torch; torch.ones(9, 9) @ torch.ones(9, 9)")
)  # the libraries of the cases


def run(ctx) -> Outcome:
    """Audit this rank's cases and gather the records of all ranks; collective. Rank 0 writes the certificate."""
    audit = ctx.config.audit
    cases = chosen(audit)
    owner = shuffled(np.arange(len(cases)) % ctx.size, ctx.options.shuffle_blocks)
    own = np.flatnonzero(owner == ctx.rank).tolist()
    rounds = int(np.bincount(owner, minlength=ctx.size).max())
    with Child() as child:
        records = _audited(ctx, child, cases, own, rounds)
        _again(ctx, child, cases, records)
    if CPU in audit.axes:
        _over_processors(ctx, cases, records)
    for number, record in records.items():
        _write(ctx, number, record)
    gathered = ctx.comm.gather(records)
    if gathered is None:
        return Outcome()
    everything = {number: record for part in gathered for number, record in part.items()}
    ordered = [everything[number] for number in range(len(cases))]
    written = certificate.content(ctx, ordered)
    certificate.write(ctx, written)
    words = certificate.summary(written)
    return Outcome(_figures(ordered), _checks(ordered), certificate.fingerprint(ordered), words)


def _audited(
    ctx, child: Child, cases: list[Chosen], own: list[int], rounds: int
) -> dict[int, dict[str, Any]]:
    """{number: record} of the cases of this rank."""
    audit, tracer = ctx.config.audit, ctx.tracer
    event = tracer.name("case", COMPUTE)
    common = {
        "what": "audit",
        "seed": ctx.seed,
        "device": ctx.options.device,
        "runs": audit.runs,
    }
    records = {}
    for step in range(rounds):
        ctx.begin_step(step + 1, rounds)
        if step >= len(own):
            continue
        number = own[step]
        tracer.at(ctx.repeat, number)
        start = tracer.clock()
        answer = child.ask(common | cases[number].request, audit.seconds)
        tracer.event(event, start)
        records[number] = {
            "name": cases[number].name,
            **cases[number].about,
            "audit": None,
            "error": None,
        } | answer
    ctx.end_steps(rounds + 1)
    return records


def _again(ctx, child: Child, cases: list[Chosen], records: dict[int, dict[str, Any]]) -> None:
    """Compare the first call of every case with the first call in fresh processes, and record the number of distinct
    digests."""
    audit = ctx.config.audit
    done = [number for number, record in records.items() if record["outcome"] == DONE]
    digests = {number: [records[number]["audit"]["digest"]] for number in done}
    failed: dict[int, dict[str, str]] = {number: {} for number in done}
    common = {"what": "digest", "seed": ctx.seed, "device": ctx.options.device}
    for process in range(audit.processes):
        child.close()  # the next request starts a fresh one
        for number in done:
            answer = child.ask(common | cases[number].request, audit.seconds)
            if answer["outcome"] != DONE:
                failed[number][str(process)] = f"{answer['outcome']}: {answer['error']}"
            elif answer["audit"]["inputs"] != records[number]["audit"]["inputs"]:
                failed[number][str(process)] = "inputs(seed) returns other numbers there"
            else:
                digests[number].append(answer["audit"]["digest"])
    for number, seen in digests.items():
        own = records[number]["audit"]
        if len(seen) > 1:
            distinct = len(set(seen))
            bound = None if distinct > 1 else bits.bound(len(seen))
            own["process"] = {
                "trials": len(seen), "distinct": distinct, "bound": bound, "failed": failed[number],
            }  # fmt: skip
        elif failed[number]:
            own["not_tried"]["process"] = next(iter(failed[number].values()))


def _over_processors(ctx, cases: list[Chosen], records: dict[int, dict[str, Any]]) -> None:
    """Compare the first call of every case with that in processes whose libraries are held to older code, one layer
    and level after the other; collective."""
    levels = ctx.comm.bcast(effective(LOADS) if ctx.rank == 0 else None)
    done = [number for number, record in records.items() if record["outcome"] == DONE]
    seen: dict[int, dict[str, str]] = {number: {} for number in done}
    failed: dict[int, dict[str, str]] = {number: {} for number in done}
    common = {"what": "digest", "seed": ctx.seed, "device": ctx.options.device}
    for layer, level, held in levels:
        with Child(held) as child:
            for number in done:
                answer = child.ask(common | cases[number].request, ctx.config.audit.seconds)
                if answer["outcome"] != DONE:
                    failed[number][f"{layer} {level}"] = f"{answer['outcome']}: {answer['error']}"
                elif answer["audit"]["inputs"] != records[number]["audit"]["inputs"]:
                    failed[number][f"{layer} {level}"] = "inputs(seed) returns other numbers there"
                else:
                    seen[number][f"{layer} {level}"] = answer["audit"]["digest"]
    for number in done:
        own, found = records[number]["audit"], seen[number]
        if (own.get("process") or own["runs"])["distinct"] > 1:
            own["not_tried"][CPU] = "the bits differ from process to process or from run to run already"
        elif found:
            distinct = len({own["digest"], *found.values()})
            own[CPU] = {
                "trials": 1 + len(found), "distinct": distinct,
                "bound": None if distinct > 1 else bits.bound(1 + len(found)),
                "by": {name: 1 + (digest != own["digest"]) for name, digest in found.items()},
                "failed": failed[number],
            }  # fmt: skip
        else:
            own["not_tried"][CPU] = next(
                iter(failed[number].values()), "no library could be held to older code"
            )


def _write(ctx, number: int, record: dict[str, Any]) -> None:
    """Write the bits of a case, and the number of distinct results under each change, as the step of its number."""
    ctx.tracer.at(ctx.repeat, number)
    audit = record["audit"]
    if audit is None:
        return
    ctx.tracer.fingerprint("result", number, bytes.fromhex(audit["digest"]))
    for change in WHAT:
        if change in audit:
            ctx.tracer.value(f"distinct:{change}", audit[change]["distinct"], number)


def _figures(records: list[dict[str, Any]]) -> dict[str, tuple[float, str]]:
    done = [record for record in records if record["outcome"] == DONE]
    tried = [change for change in WHAT if change != CPU or any(CPU in record["audit"] for record in done)]
    counts = {change: sum(differs(record, change) for record in done) for change in tried}
    return {
        "operations": (len({record["operation"] for record in records}), ""),
        "cases": (len(records), ""),
        "audited": (len(done), ""),
        **{f"differ_by_{change}": (count, "cases") for change, count in counts.items()},
    }


def _checks(records: list[dict[str, Any]]) -> list[Check]:
    late = (CRASHED, HUNG, SLOW)
    lost = [f"{r['name']}: {r['outcome']}: {r['error']}" for r in records if r["outcome"] in late]
    audited = [record for record in records if record["outcome"] == DONE]
    others = "; ".join(
        f"{r['name']}: {r['outcome']}: {r['error']}" for r in records if r["outcome"] not in (DONE, *late)
    )
    empty = any(r["outcome"] == NOTHING for r in records)
    none = "no case was compared" if empty else "no case could be called"
    return [
        Check("answered", not lost, "; ".join(lost[:5])),
        Check("audited", bool(audited), "" if audited else f"{none}: {others[:1000]}"),
    ]
