"""Injected faults do what they say, once, where they say."""

import numpy as np
import pytest

from miniapps import faults
from miniapps.config import UsageError


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
    ("spec", "told"),
    [
        ("nun@step=1,block=0", "did you mean nan?.*nan, bitflip, raise, kill"),
        ("nan@step=1", r"block missing; write nan@step=N,block=N"),
        ("nan", "step, block missing"),
        ("nan@step=x,block=0", "step takes a whole number from 0 on, not 'x'"),
        ("nan@step=-1,block=0", "not '-1'"),
        ("nan@step=1,blok=0", "unknown key 'blok'; did you mean block?"),
        ("nan@step=1,block=0,bit=3", "unknown key 'bit'"),
        ("kill@step=1,rank=4", "rank 4 of a run with 4 ranks"),
        ("kill@step=1,rank=0,repeat=2", "repeat 2 of a run with 2 repeats"),
    ],
)
def test_a_wrong_description_is_refused_with_what_would_do(spec, told):
    with pytest.raises(UsageError, match=told):
        faults.parse(spec, 4, 2)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("nan@step=3,block=9", "no rank has a block 9"),
        ("nan@step=3,block=2,index=5", "has 5 elements"),
        ("bitflip@step=3,block=2,bit=64", "float64 has the bits 0 to 63"),
    ],
)
def test_a_fault_that_finds_no_place_is_an_error(spec, told):
    with pytest.raises(UsageError, match=told):
        strike(spec, np.ones(5))
