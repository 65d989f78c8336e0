"""Injected faults do what they say, once, where they say."""

import itertools

import numpy as np
import pytest

from miniapps.errors import UsageError
from miniapps.layout.rows import Rows
from miniapps.runner import faults
from miniapps.runner.watch import Watch
from miniapps.solver.problem import random_by_block
from miniapps.trace import Tracer, fingerprint, read
from tests.miniapps.coupled_model import advance, model


class Alone:
    """As much of a communicator of one rank as faults need."""

    rank, size = 0, 1

    def allreduce(self, value):
        return value


def strike(spec, state, step=3, repeat=0):
    """Inject `spec` at a step into block 2, which holds `state`; the faults that were due."""
    parsed = [faults.parse(spec, 1, 2)]
    return faults.inject(parsed, Alone(), repeat, step, lambda block: state if block == 2 else None)


def test_nan_strikes_one_element_of_one_block_in_one_step():
    state = np.ones((2, 3))
    assert strike("nan@step=3,block=2,index=4", state, step=2) == []
    assert strike("nan@step=3,block=2,index=4", state, repeat=1) == []
    assert not np.isnan(state).any()
    assert len(strike("nan@step=3,block=2,index=4", state)) == 1
    assert np.flatnonzero(np.isnan(state)).tolist() == [4]


def test_it_reaches_the_elements_of_a_strided_view():
    field = np.ones((4, 4))
    strike("nan@step=3,block=2,index=3", field[1:3, 1:3])
    assert np.argwhere(np.isnan(field)).tolist() == [[2, 2]]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("bit", [0, 7, 31])
def test_bitflip_inverts_exactly_one_bit_and_a_second_one_restores_it(dtype, bit):
    state = np.linspace(1, 2, 5).astype(dtype)
    before = state.copy()
    spec = f"bitflip@step=3,block=2,bit={bit},index=3"
    strike(spec, state)
    pattern = f"u{state.itemsize}"
    assert (state.view(pattern) ^ before.view(pattern)).tolist() == [0, 0, 0, 1 << bit, 0]
    strike(spec, state)
    assert np.array_equal(state.view(pattern), before.view(pattern))


def test_raise_raises_on_its_rank_alone():
    with pytest.raises(faults.InjectedFault, match="--fault raise@step=3,rank=0"):
        strike("raise@step=3,rank=0", None)
    other = faults.parse("raise@step=3,rank=1", 2, 1)
    assert faults.inject([other], Alone(), 0, 3, None) == [other]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nun@step=1,block=0", "did you mean nan?.*nan, bitflip, raise, kill"),
        ("kernel-bit@block=1", r"step missing; write kernel-bit@step=N,block=N"),
        ("swap-order@step=1,rank=1", "other missing"),
        ("swap-order@step=1,rank=1,other=1", "rank and other are the same"),
        ("swap-order@step=1,rank=1,other=4", "other 4 of a run with 4 ranks"),
        ("lost-halo@step=1,rank=4", "rank 4 of a run with 4 ranks"),
        ("lost-halo@step=1,rank=0,block=2", "unknown key 'block'"),
        ("seed@block=1,step=3", "unknown key 'step'"),
        ("nan@step=1", r"block missing; write nan@step=N,block=N"),
        ("nan", "step, block missing"),
        ("nan@step=x,block=0", "step takes a whole number from 0 to 2147483647, not 'x'"),
        ("nan@step=-1,block=0", "not '-1'"),
        ("nan@step=1,blok=0", "unknown key 'blok'; did you mean block?"),
        ("nan@step=1,block=0,bit=3", "unknown key 'bit'"),
        ("kill@step=1,rank=4", "rank 4 of a run with 4 ranks"),
        ("kill@step=1,rank=0,repeat=2", "repeat 2 of a run with 2 repeats"),
    ],
)
def test_a_wrong_description_is_refused_with_what_would_do(spec, message):
    with pytest.raises(UsageError, match=message):
        faults.parse(spec, 4, 2)


@pytest.mark.parametrize("spec", ["swap-order@step=1,rank=0,other=1", "lost-halo@step=1,rank=0"])
def test_what_passes_between_ranks_cannot_fail_in_a_run_of_one(spec):
    with pytest.raises(UsageError, match=r"a run of one rank sends|of a run with 1 ranks"):
        faults.parse(spec, 1, 1)


def watching(tmp_path, *specs, recording=True):
    """A Watch on one rank and its tracer."""
    tracer = Tracer(tmp_path / "trace.h5", {"rank": 0})
    parsed = [faults.parse(spec, 1, 2) for spec in specs]
    return Watch(Alone(), tracer, parsed, set(), recording), tracer


def test_kernel_bit_flips_one_bit_of_one_block_in_one_call_of_one_step(tmp_path):
    spec = "kernel-bit@step=2,block=7,call=1,bit=5,index=3"
    watch, tracer = watching(tmp_path, spec)
    changes = {}
    for repeat, step, call in itertools.product(range(2), range(1, 4), range(3)):
        if call == 0:
            tracer.at(repeat, step)
        results = np.linspace(1, 2, 8).reshape(2, 4)
        before = results.copy()
        watch.kernel("rhs", [4, 7], results)
        if changed := np.argwhere(results != before).tolist():
            changes[repeat, step, call] = changed, (results.view("u8") ^ before.view("u8")).sum()
    tracer.close()
    assert changes == {(0, 2, 1): ([[1, 3]], 1 << 5)}


def test_kernel_bit_in_a_block_that_nobody_has_is_an_error(tmp_path):
    watch, tracer = watching(tmp_path, "kernel-bit@step=2,block=9")
    tracer.at(0, 2)
    with pytest.raises(UsageError, match="no rank has a block 9"):
        watch.kernel("rhs", [4, 7], np.ones((2, 4)))
    tracer.close()


def test_the_records_hold_what_the_fault_made(tmp_path):
    watch, tracer = watching(tmp_path, "kernel-bit@step=2,block=7")
    tracer.at(0, 2)
    results = np.ones((2, 4))
    watch.kernel("rhs", [4, 7], results)
    tracer.close()
    trace = read(tmp_path / "trace.h5")
    rows = trace.tables["fingerprints"]
    assert [trace.names[name] for name in rows["name"]] == ["computed:rhs"] * 2
    assert rows["block"].tolist() == [4, 7]
    hashes = [f"{hi:016x}{lo:016x}" for hi, lo in zip(rows["hi"], rows["lo"], strict=True)]
    assert hashes == [fingerprint(np.ones(4)).hex(), fingerprint(results[1]).hex()] and hashes[0] != hashes[1]


def test_the_numbers_of_the_block_alone_are_drawn_by_another_seed():
    parsed = [faults.parse("seed@block=3", 1, 2), faults.parse("seed@block=5,repeat=1", 1, 2)]
    assert faults.other_seeds(parsed, 0, 10, range(8)) == {3: 11}
    assert faults.other_seeds(parsed, 1, 10, [5]) == {5: 11}
    rows = Rows(np.arange(0, 25, 3))
    plain, other = random_by_block(rows, (10, 0)), random_by_block(rows, (10, 0), {3: 11})
    assert np.flatnonzero(plain != other).tolist() == [9, 10, 11]
    assert np.array_equal(other[9:12], random_by_block(rows, (11, 0))[9:12])


def test_a_watch_exists_only_where_it_was_asked_for_and_changes_no_bits(tmp_path):
    settings = {"grid.nx": 16, "grid.ny": 16, "grid.bx": 8, "grid.by": 8, "closure.kind": "physics"}
    states = {}
    for record in ("state", "messages"):
        (tmp_path / record).mkdir()
        with model(tmp_path / record, settings, record=record) as simulation:
            assert (simulation.ctx.watch is None) == (record == "state")
            advance(simulation, 2)
            states[record] = simulation.state.zeta.tobytes() + simulation.state.psi.tobytes()
    assert states["state"] == states["messages"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nan@step=3,block=9", "no rank has a block 9"),
        ("nan@step=3,block=2,index=5", "has 5 elements"),
        ("bitflip@step=3,block=2,bit=64", "float64 has the bits 0 to 63"),
    ],
)
def test_a_fault_that_finds_no_place_is_an_error(spec, message):
    with pytest.raises(UsageError, match=message):
        strike(spec, np.ones(5))
