"""An order of messages is called one: ranks of senders are no numbers, and what to record next exists and is new."""

import numpy as np
import pytest

from analysis.divergence.cause import cause
from analysis.divergence.classes import ORDER
from analysis.divergence.compare import compare
from analysis.divergence.steps import by_step
from analysis.load.frames import load
from miniapps.trace import Tracer
from miniapps.trace.records import ADDED, RECEIVED, SENT, SOURCE
from miniapps.trace.schema import rank_file
from tests.analysis.campaigns import Written, _attributes
from tests.analysis.said import comparison_lines

CALL = "MPI_Recv at collect (app.c:14)"


def write(place, sources, received=None, sent=None, added=None):
    """A program on 2 ranks whose rank 0 takes messages from these `sources`, in turn."""
    place.mkdir()
    run = Written("calls", 2, "none", (False, False, True, True))
    tracers = [
        Tracer(place / rank_file(rank), _attributes(run, rank, str(place)), size=2) for rank in range(2)
    ]
    for tracer in tracers:
        tracer.at(0, 0)
    for i, source in enumerate(sources):
        tracers[0].value(f"{SOURCE}{CALL}", float(source), 0)
        if received is not None:
            tracers[0].fingerprint(f"{RECEIVED}{CALL}", 0, bytes([received[i]] * 16))
    if sent is not None:
        tracers[1].fingerprint(f"{SENT}MPI_Send at main (app.c:20)", 1, bytes([sent] * 16))
    if added is not None:
        tracers[0].fingerprint(
            f"{ADDED}MPI_Allreduce at main (app.c:30) by rank 0 of 2", -1, bytes([added] * 16)
        )
    for tracer in tracers:
        tracer.event(tracer.name(CALL, "exchange"), tracer.clock())
        tracer.close()


@pytest.mark.parametrize(
    "one, other",
    [({}, {}), ({"received": [1, 2, 3]}, {"received": [3, 2, 1]}), ({"added": 1}, {"added": 2})],
    ids=["alone", "with what came", "with what was made of it"],
)
def test_another_order_of_messages_is_named_and_is_no_number(tmp_path, one, other):
    write(tmp_path / "a", [1, 2, 3], **one)
    write(tmp_path / "b", [3, 2, 1], **other)
    frames = load([tmp_path], processes=1)
    found = compare(frames, ("a", 0), ("b", 0))
    assert found.differs and cause(frames, found).kind == ORDER
    text = "\n".join(comparison_lines(found, frames))
    assert "ULP" not in text and "local kernel" not in text
    assert f"on rank 0, message 1 of this step at {CALL} is of rank 1 against rank 3" in text
    assert not by_step(frames, ("a", 0), ("b", 0))["max_ulp"].gt(0).any()


def test_what_was_recorded_is_not_advised_again(tmp_path):
    write(tmp_path / "a", [1], received=[1])
    write(tmp_path / "b", [1], received=[2])
    write(tmp_path / "c", [1], received=[1], sent=1)
    write(tmp_path / "d", [1], received=[2], sent=1)
    frames = load([tmp_path], processes=1)
    without, recorded = (
        cause(frames, compare(frames, (one, 0), (other, 0))).instead_why for one, other in ("ab", "cd")
    )
    assert "fpna run --point-to-point" in without and "--record messages" not in without
    assert "--point-to-point" not in recorded


def test_equal_messages_are_no_difference(tmp_path):
    for name in "ab":
        write(tmp_path / name, [2, 1], received=[1, 2])
    frames = load([tmp_path], processes=1)
    assert compare(frames, ("a", 0), ("b", 0)).equal
    assert np.isfinite(by_step(frames, ("a", 0), ("b", 0))["max_ulp"].dropna()).all()
