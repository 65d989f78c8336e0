"""A run forged by someone who can write all of its files and knows every format: what was changed fits everywhere, so
that only heads that were published before, or executing again, can tell."""

import json
from dataclasses import asdict, replace

import h5py
import numpy as np

from miniapps.trace import read
from miniapps.trace.chain import HEAD, next_head
from miniapps.trace.checked import taken
from miniapps.trace.heads import chains, checkpoint_file, problem_of_trace
from miniapps.untrusted.result import RESULT, parts_of, written
from tests.tampering import altered, reseal


def rewritten(run, change):
    """result.json of `run` as `change` leaves it, its own hash made to fit."""
    path = run / RESULT
    result = json.loads(path.read_text())
    result.pop("digest")
    change(result)
    path.write_text(written(result))
    return result


def forged(run, change=lambda file: None, result=lambda result: None):
    """The `run` of one rank after `change` did what it wants to the open trace, and `result` to result.json: heads,
    checkpoints, seals and hashes are made anew."""
    path = run / "rank-00000.h5"
    altered(path, change)
    trace = read(path)
    problem, heads, known = problem_of_trace(trace.attributes), {}, []
    for chain in chains(trace):
        head = bytes.fromhex(chain.begin[1])
        for mark, digests in zip(chain.marks, taken(trace, chain), strict=True):
            kept = bytes.fromhex(mark.checkpoint or mark.state)
            head = next_head(head, mark.step, digests, kept, problem)
            heads[mark.repeat, mark.step] = head
            known.append(replace(mark, head=head.hex()))
            if mark.checkpoint and (run / checkpoint_file(mark.repeat, mark.step)).exists():
                _of_head(run / checkpoint_file(mark.repeat, mark.step), head)

    def anew(content):
        result(content)
        content["chain"] = [asdict(mark) for mark in known]

    content = rewritten(run, anew)

    def fit(file):
        file.attrs["result"] = json.dumps(parts_of(content))
        rows = file["fingerprints"]
        for place in np.flatnonzero(rows["name"][...] == trace.names.index(HEAD)).tolist():
            head = heads[int(rows["repeat"][place]), int(rows["step"][place])]
            half = head[16:] if rows["block"][place] else head[:16]
            rows["hi"][place], rows["lo"][place] = (int.from_bytes(half[k : k + 8], "big") for k in (0, 8))

    altered(path, fit)
    rewritten(run, lambda content: content["traces"].update({path.name: read(path).digest}))


def _of_head(path, head):
    with h5py.File(path, "r+") as file:
        file.attrs["chain"] = np.bytes_(head.hex().encode())
    reseal(path)
