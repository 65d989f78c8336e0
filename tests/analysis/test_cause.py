"""The cause of a first divergence: its class and its event, in runs of which every record is known, and in real ones
with injected faults."""

import json
import os

import h5py
import numpy as np
import pytest

from analysis import comparison
from analysis.divergence.cause import cause
from analysis.divergence.compare import compare
from analysis.divergence.element import block_of, first_element, grid_of, ulp_between
from analysis.load.frames import load
from benchmarks.apps import first_divergence
from miniapps.trace import Tracer
from miniapps.trace.records import ADDED, COMPUTED, INPUT, LEFT, RECEIVED, SENT, TOTAL
from miniapps.untrusted.sealed import write_sealed
from tests.analysis.said import comparison_lines
from tests.analysis.synthetic import attributes, owners, region, write_run

BLOCKS, STEPS, STATE = 6, 3, "vorticity"


def write(out, changed=(), size=2, orders=None, watched=True, level="regions", **more):
    """A run in which each step records the state, exchanges, computes `rhs`, updates, sums, and leaves.

    `changed`: (step, name, block) whose bits are other than usual. Without `watched` only states are recorded.
    """
    out.mkdir()
    owner = owners(BLOCKS, size)
    for rank in range(size):
        own = np.flatnonzero(owner == rank)
        metadata = attributes(rank, size, "run", "ring", run_id=str(out), **more)
        with Tracer(out / f"rank-{rank:05d}.h5", metadata, size=size, level=level) as tracer:

            def record(name, blocks, step, tracer=tracer):
                if watched or name in (STATE, INPUT + STATE):
                    for block in blocks:
                        moved = 2.0**-52 * ((step, name, block) in changed)
                        tracer.array(name, block, np.array([1.0 + moved]))

            def event(name, tracer=tracer):
                tracer.event(region(tracer, name), tracer.clock())

            tracer.at(0, 0)
            record(INPUT + STATE, own, 0)
            record(LEFT + STATE, own, 0)
            for step in range(1, STEPS + 1):
                tracer.at(0, step)
                begin = tracer.clock()
                record(STATE, own, step)
                event("record")
                record(SENT + "halo", own, step)
                event("halo")
                record(RECEIVED + "halo", own, step)
                event("rhs")
                record(COMPUTED + "rhs", own, step)
                event("update")
                record(ADDED + "scalars", own, step)
                event("allreduce.scalars")
                record(TOTAL + "scalars", [-1], step)
                record(LEFT + STATE, own, step)
                if orders and rank == 0:
                    tracer.order("scalars", [orders(step)])
                tracer.event(region(tracer, "step"), begin)
    return out


def judged(tmp_path, changed, other=None, **options):
    """The cause found between a run without and one with `changed`."""
    write(tmp_path / "a", **options)
    write(tmp_path / "b", changed, **(options | (other or {})))
    frames = load([tmp_path / "a", tmp_path / "b"])
    return cause(frames, compare(frames, ("a", 0), ("b", 0)))


@pytest.mark.parametrize(
    ("name", "block", "kind", "event"),
    [
        (STATE, 4, "memory", None),
        (SENT + "halo", 4, "memory", None),
        (RECEIVED + "halo", 4, "halo exchange", "halo"),
        (COMPUTED + "rhs", 4, "local kernel", "rhs"),
        (ADDED + "scalars", 4, "local kernel", "update"),
        (TOTAL + "scalars", -1, "collective", "allreduce.scalars"),
    ],
)
def test_the_first_record_that_differs_names_class_and_event(tmp_path, name, block, kind, event):
    verdict = judged(tmp_path, {(2, name, block), (3, STATE, 0), (3, STATE, 4)})
    assert (verdict.kind, verdict.at.step, verdict.at.block) == (kind, 2, block)
    assert verdict.rank == (None if block < 0 else owners(BLOCKS, 2)[4])
    if event is None:
        assert verdict.event is None
    else:
        assert (verdict.event.name, verdict.event.step, verdict.event.call) == (event, 2, 0)
        assert verdict.event.rank == (0 if block < 0 else 1)
        assert 0 <= verdict.event.start <= verdict.event.end


def test_the_same_place_is_named_when_the_rank_counts_differ(tmp_path):
    verdict = judged(tmp_path, {(2, COMPUTED + "rhs", 5)}, other={"size": 3})
    assert (verdict.kind, verdict.name, verdict.at.block, verdict.rank) == ("local kernel", "rhs", 5, 2)


@pytest.mark.parametrize("other, kind", [([1, 0, 2], "message order"), ([0, 1, 2], "collective")])
def test_another_total_of_equal_contributions_is_the_order_only_where_the_orders_differ(
    tmp_path, other, kind
):
    def in_step(usual, at_2):
        return lambda step: at_2 if step == 2 else usual

    orders = {"orders": in_step([0, 1, 2], other)}
    verdict = judged(
        tmp_path, {(2, TOTAL + "scalars", -1)}, orders, size=3, orders=in_step([0, 1, 2], [0, 1, 2])
    )
    assert (verdict.kind, verdict.name, verdict.instead) == (kind, "scalars", "")


@pytest.mark.parametrize(
    ("moved", "kind", "step"),
    [({1}, "local kernel", None), ({1, 2}, "message order", 2), ({2}, "message order", 2)],
)
def test_without_messages_an_order_is_blamed_only_if_it_differs_since_the_last_equal_state(
    tmp_path, moved, kind, step
):
    def usual(step):
        return [0, 1, 2]

    options = {"size": 3, "watched": False, "orders": usual}
    sums = {"scalars": {"ordering": "arrival", "region": "allreduce.scalars", "guarantee": "none"}}
    everything = {(3, STATE, block) for block in range(BLOCKS)}
    other = {"orders": lambda step: [1, 0, 2] if step in moved else usual(step)}
    verdict = judged(tmp_path, everything, other, reductions=sums, **options)
    assert (verdict.kind, verdict.event.step if step else None) == (kind, step), verdict
    if not step:
        assert "the recorded order of allreduce.scalars is the same" in verdict.why


def test_a_total_whose_order_nobody_recorded_may_be_either(tmp_path):
    verdict = judged(tmp_path, {(2, TOTAL + "scalars", -1)})
    assert (verdict.kind, verdict.instead) == ("collective", "message order")
    assert "--allreduce arrival" in verdict.instead_why


def test_what_a_run_starts_from_is_the_input(tmp_path):
    verdict = judged(tmp_path, {(0, INPUT + STATE, 3), (1, STATE, 3), (2, STATE, 0)}, watched=False)
    assert (verdict.kind, verdict.name, verdict.at.block) == ("input", STATE, 3)


def test_without_messages_one_block_after_a_sum_is_memory_and_says_what_else_it_may_be(tmp_path):
    verdict = judged(tmp_path, {(2, STATE, 4)}, watched=False)
    assert (verdict.kind, verdict.at.step, verdict.at.block, verdict.rank) == ("memory", 2, 4, 1)
    assert verdict.instead == "local kernel" and "--record messages" in verdict.instead_why


def test_without_messages_all_blocks_by_little_are_a_collective_and_the_kernel_is_second(tmp_path):
    sums = {"scalars": {"ordering": "arrival", "region": "allreduce.scalars", "guarantee": "none"}}
    changed = {(2, STATE, block) for block in range(BLOCKS)}
    verdict = judged(tmp_path, changed, watched=False, reductions=sums)
    assert (verdict.kind, verdict.event.name, verdict.instead) == (
        "collective",
        "allreduce.scalars",
        "local kernel",
    )
    assert verdict.rounding.verdict == "rounding" and "needs no bug" in verdict.next


@pytest.mark.parametrize("guarantee", ["run", "layout", "exact"])
def test_no_sum_is_blamed_whose_order_the_guarantee_fixes(tmp_path, guarantee):
    sums = {"scalars": {"ordering": "ring", "region": "allreduce.scalars", "guarantee": guarantee}}
    changed = {(2, STATE, block) for block in range(BLOCKS)}
    verdict = judged(tmp_path, changed, watched=False, reductions=sums)
    assert verdict.kind == "local kernel" and verdict.instead != "collective"
    assert any("which the guarantee fixes" in line for line in verdict.why)


def test_without_messages_sums_of_another_number_of_ranks_are_named_before_kernels(tmp_path):
    verdict = judged(tmp_path, {(2, STATE, block) for block in range(BLOCKS)}, {"size": 3}, watched=False)
    assert (verdict.kind, verdict.event.name, verdict.instead) == (
        "collective",
        "allreduce.scalars",
        "local kernel",
    )
    assert any("2 and 3 ranks group the contributions to allreduce.scalars" in line for line in verdict.why)


def test_without_messages_the_blocks_of_one_rank_are_a_halo_and_the_kernel_is_second(tmp_path):
    verdict = judged(tmp_path, {(2, STATE, 0), (2, STATE, 1)}, watched=False)
    assert (verdict.kind, verdict.rank, verdict.instead) == ("halo exchange", 0, "local kernel")


@pytest.mark.parametrize("name", [COMPUTED + "rhs", STATE, ADDED + "scalars"])
def test_without_events_there_is_a_class_and_no_event(tmp_path, name):
    verdict = judged(tmp_path, {(2, name, 4)}, level="off")
    assert verdict.kind == "local kernel" and verdict.event is None


def test_equal_runs_have_no_cause(tmp_path):
    assert judged(tmp_path, set()) is None


# ---- elements


def keep(run, step, **fields):
    """A snapshot as coupled writes them."""
    path = run / "snapshots" / f"repeat-0-step-{step:06d}.h5"
    path.parent.mkdir(exist_ok=True)
    write_sealed(path, lambda file: [file.create_dataset(name, data=array) for name, array in fields.items()])
    return path


def flipped(step, **more):
    """A run whose state differs from `step` on."""

    def change(repeat, now, field):
        field[5, 0] += 1.0 if now >= step else 0.0

    return {"change": change, **more}


GRID = {"run": {"seed": 1}, "grid": {"ny": 8, "nx": 12, "by": 4, "bx": 4}}


def test_the_first_element_of_the_first_snapshot_that_differs_is_named(tmp_path):
    a = write_run(tmp_path / "a", config=GRID)
    b = write_run(tmp_path / "b", **flipped(3, config=GRID))
    zeta, psi = np.linspace(1, 2, 96).reshape(8, 12), np.zeros((8, 12))
    other = zeta.copy()
    other[5, 9] = np.nextafter(np.nextafter(zeta[5, 9], 9), 9)
    other[7, 0] = -zeta[7, 0]
    for step in (1, 2, 3):
        keep(a, step, zeta=zeta, psi=psi)
        keep(b, step, zeta=other if step == 3 else zeta, psi=-psi if step == 3 else psi)
    frames = load([tmp_path])
    divergence = compare(frames, ("a", 0), ("b", 0))
    element, unread = first_element(frames, divergence)
    assert not unread
    assert (element.field, element.index, element.block, element.local) == ("zeta", (5, 9), 5, (1, 1))
    assert (element.a, element.b, element.ulp) == (zeta[5, 9], other[5, 9], 2)
    assert (element.differing, element.elements, element.furthest) == (2, 96, (7, 0))
    text = dict(comparison.facts(divergence, frames))["element"]
    assert zeta[5, 9].hex() in text and repr(float(other[5, 9])) in text and "snapshots/" in text


def test_nan_and_zeros_of_other_sign_differ_as_bits(tmp_path):
    a, b = write_run(tmp_path / "a", config=GRID), write_run(tmp_path / "b", **flipped(1, config=GRID))
    psi = np.zeros((8, 12))
    other = psi.copy()
    other[0, 1], other[0, 2] = -0.0, np.nan
    keep(a, 2, psi=psi)
    keep(b, 2, psi=other)
    frames = load([tmp_path])
    element, _ = first_element(frames, compare(frames, ("a", 0), ("b", 0)))
    assert (element.index, element.ulp, element.differing, element.furthest) == ((0, 1), 1, 2, (0, 2))
    assert np.isnan(element.most) and "NaN" in comparison.element_text(element)


def test_files_that_are_not_there_or_cut_short_name_no_element(tmp_path):
    a, b = write_run(tmp_path / "a", config=GRID), write_run(tmp_path / "b", **flipped(1, config=GRID))
    frames = load([tmp_path])
    divergence = compare(frames, ("a", 0), ("b", 0))
    assert first_element(frames, divergence) == (None, [])
    keep(a, 2, psi=np.zeros((8, 12)))
    keep(b, 2, psi=np.ones((8, 12))).write_bytes(b"\x89HDF")
    assert first_element(frames, divergence)[0] is None


def flip(path):
    """Another bit in the last byte of the file."""
    image = bytearray(path.read_bytes())
    image[-1] ^= 1
    path.write_bytes(image)


def without_seal(path):
    with h5py.File(path, "w") as file:
        file["psi"] = np.ones((8, 12))


def linked(path):
    path.rename(path.with_suffix(".there"))
    path.symlink_to(path.with_suffix(".there"))


def group(path):
    write_sealed(path, lambda file: file.create_group("psi"))


def link_out(path):
    outside = keep(path.parents[2], 2, psi=np.full((8, 12), 7.0))
    write_sealed(path, lambda file: file.__setitem__("psi", h5py.ExternalLink(str(outside), "/psi")))


def stored_outside(path):
    (path.parents[2] / "raw").write_bytes(b"secret__" * 96)
    external = [(str(path.parents[2] / "raw"), 0, 8 * 96)]
    write_sealed(path, lambda file: file.create_dataset("psi", (8, 12), "f8", external=external))


def huge(path):
    write_sealed(path, lambda file: file.create_dataset("psi", (2**20, 2**20), "f8", chunks=(64, 64)))


def fifo(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (flip, "another hash"),
        (without_seal, "without a seal"),
        (linked, "is a symbolic link"),
        (group, "damaged"),
        (link_out, "is a link, which may lead to another file"),
        (stored_outside, "in another file"),
        (huge, "claims 8,796,093,022,208 bytes"),
        (fifo, "is a fifo"),
    ],
)
def test_a_file_that_cannot_be_believed_is_named_and_the_next_is_compared(tmp_path, spoil, reason):
    a, b = write_run(tmp_path / "a", config=GRID), write_run(tmp_path / "b", **flipped(1, config=GRID))
    for step in (2, 3):
        keep(a, step, psi=np.zeros((8, 12)))
        spoiled = keep(b, step, psi=np.full((8, 12), float(step)))
        if step == 2:
            spoil(spoiled)
    frames = load([a, b])
    divergence = compare(frames, ("a", 0), ("b", 0))
    element, unread = first_element(frames, divergence)
    assert (element.file, element.b) == ("snapshots/repeat-0-step-000003.h5", 3.0)
    assert len(unread) == 1 and str(spoiled).replace("000003", "000002") in unread[0] and reason in unread[0]
    assert "\n" not in unread[0]
    assert ("not compared", unread[0]) in comparison.facts(divergence, frames)


def test_a_folder_that_is_a_link_is_not_followed(tmp_path):
    a, b = write_run(tmp_path / "a", config=GRID), write_run(tmp_path / "b", **flipped(1, config=GRID))
    keep(a, 2, psi=np.zeros((8, 12)))
    (tmp_path / "elsewhere").mkdir()
    (b / "snapshots").symlink_to(keep(tmp_path / "elsewhere", 2, psi=np.ones((8, 12))).parent)
    frames = load([a, b])
    element, unread = first_element(frames, compare(frames, ("a", 0), ("b", 0)))
    assert element is None and len(unread) == 1 and "b/snapshots: is a symbolic link" in unread[0]


def test_many_files_that_cannot_be_read_are_counted(tmp_path):
    a, b = write_run(tmp_path / "a", config=GRID), write_run(tmp_path / "b", **flipped(1, config=GRID))
    for step in range(2, 8):
        keep(a, step, psi=np.zeros((8, 12)))
        flip(keep(b, step, psi=np.ones((8, 12))))
    frames = load([a, b])
    element, unread = first_element(frames, compare(frames, ("a", 0), ("b", 0)))
    assert element is None and len(unread) == 4 and unread[-1] == "3 more files cannot be read"


@pytest.mark.parametrize("grid", [{"ny": 8, "nx": 12, "by": 0, "bx": 4}, {"ny": "8"}, [], 3])
def test_a_grid_that_cannot_be_has_no_blocks(tmp_path, grid):
    """The configuration comes from a trace that someone else may have written."""
    text = json.dumps({"grid": grid})
    assert block_of("psi", (1, 1), (8, 12), grid_of(text)) == (-1, ())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ulps_are_counted_in_the_type_of_the_numbers(dtype):
    x = np.array([1.0, -1.0, 0.0], dtype)
    up = np.nextafter(np.nextafter(x, x.dtype.type(5)), x.dtype.type(5))
    assert ulp_between(x, up).tolist() == [2, 2, 2]


# ---- what is said


def test_the_command_says_cause_event_and_why(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b", {(2, COMPUTED + "rhs", 4)})
    frames = load([tmp_path])
    facts = dict(comparison.facts(compare(frames, ("a", 0), ("b", 0)), frames))
    assert facts["cause"] == "local kernel: rhs in block 4 on rank 1, step 2"
    assert facts["event"].startswith("rhs, call 1 of step 2, on rank 1 in b:0: 0.0")
    assert "rhs gave other bits in block 4 (1 of 6)" in facts["why"]


def test_runs_of_unequal_length_say_what_was_compared(tmp_path):
    write_run(tmp_path / "a", steps=6)
    write_run(tmp_path / "b", steps=4, method={"run.method": "another"})
    frames = load([tmp_path])
    lines = comparison_lines(compare(frames, ("a", 0), ("b", 0)), frames)
    assert "a:0 has steps up to 5, b:0 up to 3: only those in both count" in lines[1]


# ---- injected faults in real runs


ALWAYS_SEEN = {"kernel-bit", "bitflip", "lost-halo", "seed"}


@pytest.mark.parametrize(
    ("app", "how", "seed", "kinds"),
    [
        pytest.param("solver", "messages", 29, ALWAYS_SEEN | {"swap-order"}, marks=pytest.mark.slow),
        pytest.param("coupled", "ranks", 4, ALWAYS_SEEN, marks=pytest.mark.slow),
    ],
)
def test_every_injected_fault_is_named_exactly(tmp_path, app, how, seed, kinds):
    judgements = first_divergence.measure([app], faults=1, seed=seed, root=tmp_path, hows=(how,))
    seen = [judgement for judgement in judgements if not judgement["masked"]]
    assert {judgement["kind"] for judgement in seen} >= kinds
    wrong = [j for j in seen if not (j["class_right"] and j["place_right"])]
    assert not wrong, wrong
