"""The hash tree finds what comparing every row finds, and reads little."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.divergence.compare import compare
from analysis.divergence.steps import growth
from analysis.load import cache, tree
from analysis.load.columns import PAYLOAD
from analysis.load.frames import load
from tests.analysis.synthetic import flip_bit, write_run

KEY = ["step", "name", "occurrence", "block"]


def columns(rows):
    """Sorted rows (step, block, hi, lo) of one name."""
    step, block, hi, lo = (np.array(column, np.uint64) for column in zip(*sorted(rows), strict=True))
    nothing = np.zeros(len(rows), np.int32)
    return {
        "repeat": nothing, "step": step.astype(np.int32), "name": nothing, "occurrence": nothing,
        "seq": nothing, "block": block.astype(np.int32), "hi": hi, "lo": lo,
    }  # fmt: skip


rows = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 1000)),
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    min_size=1, max_size=30,
)  # fmt: skip


@settings(deadline=None)
@given(rows, st.data())
def test_leaves_cover_all_rows_and_change_with_every_bit(entries, data):
    table = columns([(*key, *value) for key, value in entries.items()])
    leaves = tree.leaves(table, PAYLOAD["fingerprints"])
    assert leaves["rows"].sum() == len(entries)
    assert np.array_equal(leaves["begin"], np.cumsum([0, *leaves["rows"]])[:-1])
    row, bit = data.draw(st.integers(0, len(entries) - 1)), data.draw(st.integers(0, 127))
    changed = {**table, "hi": table["hi"].copy(), "lo": table["lo"].copy()}
    changed["hi" if bit < 64 else "lo"][row] ^= np.uint64(1 << (bit % 64))
    other = tree.leaves(changed, PAYLOAD["fingerprints"])
    differ = (leaves["hi"] != other["hi"]) | (leaves["lo"] != other["lo"])
    where = np.searchsorted(leaves["begin"], row, side="right") - 1
    assert np.flatnonzero(differ).tolist() == [where]
    assert np.array_equal(leaves["keys"], other["keys"])


def test_two_blocks_that_exchange_their_bits_are_noticed():
    one = tree.leaves(columns([(0, 1, 5, 6), (0, 2, 7, 8)]), PAYLOAD["fingerprints"])
    other = tree.leaves(columns([(0, 1, 7, 8), (0, 2, 5, 6)]), PAYLOAD["fingerprints"])
    assert (one["hi"] != other["hi"]).all() and (one["keys"] == other["keys"]).all()


def plainly(frames, table, a, b):
    """All rows of both runs side by side, and whether they differ, by comparing every row."""
    left, right = (frames.of(table, *run) for run in (a, b))
    both = left.merge(right, on=KEY, suffixes=("", "_b"))
    words = [f"{column}" for column in PAYLOAD[table]]
    bits = [both[w].to_numpy().view(np.uint64) != both[f"{w}_b"].to_numpy().view(np.uint64) for w in words]
    return both.assign(differs=np.any(bits, axis=0))


@pytest.mark.parametrize("seed", range(6))
def test_the_first_divergence_and_the_growth_are_those_of_every_row_compared(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(tree, "LEAF", 4)
    rng = np.random.default_rng(seed)
    hits = {(int(rng.integers(6)), int(rng.integers(30))) for _ in range(rng.integers(1, 40))}

    def change(repeat, step, field):
        for at, block in hits:
            if step == at:
                flip_bit(field, block, element=int(rng.integers(2)))

    write_run(tmp_path / "a", size=2, blocks=30, steps=6)
    write_run(tmp_path / "b", size=3, blocks=30, steps=5 + seed % 2, change=change, shuffle=seed)
    if seed == 5:  # a run that recorded fewer blocks
        hits = {(step, block) for step, block in hits if block < 25}
        write_run(tmp_path / "c", size=3, blocks=25, steps=6, change=change)
    frames = load([tmp_path])
    a, b = ("a", 0), ("c" if seed == 5 else "b", 0)
    divergence, grown = compare(frames, a, b), growth(frames, a, b)
    shared = 0
    for table, point in (("fingerprints", divergence.fingerprint), ("values", divergence.value)):
        both = plainly(frames, table, a, b)
        shared += len(both)
        changed = both[both["differs"]]
        if changed.empty:
            assert point is None
            continue
        first = changed.sort_values(["step", "seq", "block"], kind="stable").iloc[0]
        assert (point.step, point.name, point.block) == (first["step"], first["name"], first["block"])
        same = both[(both["step"] == first["step"]) & (both["name"] == first["name"])]
        assert (point.differing, point.recorded) == (same["differs"].sum(), len(same))
        expected = both.groupby(["step", "name"], observed=True)["differs"].agg(["size", "sum"])
        mine = grown[grown["kind"] == table].set_index(["step", "name"])[["elements", "differing"]]
        assert {key: tuple(row) for key, row in mine.T.items()} == {
            key: tuple(row) for key, row in expected.T.items()
        }
    assert divergence.compared == shared


def test_equal_runs_are_compared_without_reading_a_row(tmp_path):
    write_run(tmp_path / "a", size=2)
    write_run(tmp_path / "b", size=3)
    load([tmp_path])
    frames = load([tmp_path])
    assert compare(frames, ("a", 0), ("b", 0)).equal
    assert frames.store.rows_read("fingerprints") == frames.store.rows_read("values") == 0


def test_one_block_that_differs_is_found_by_reading_its_neighbours_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "GROUP", 64)
    monkeypatch.setattr(tree, "LEAF", 16)
    write_run(tmp_path / "a", size=2, blocks=512)
    write_run(tmp_path / "b", size=3, blocks=512,
              change=lambda repeat, step, field: flip_bit(field, 300, element=3) if step == 4 else None)  # fmt: skip
    load([tmp_path])
    frames = load([tmp_path])
    difference = compare(frames, ("a", 0), ("b", 0)).first
    assert (
        difference.step,
        difference.name,
        difference.block,
        difference.differing,
        difference.recorded,
    ) == (
        4,
        "vorticity",
        300,
        1,
        512,
    )
    assert frames.store.rows_read("fingerprints") == 2 * 64  # of 2 x 6,144
