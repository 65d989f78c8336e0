"""Heads of a run: over all that it recorded, whoever recorded it, and over nothing else."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from analysis.__main__ import main as analysis
from miniapps.checkpoints.file import read as read_checkpoint
from miniapps.coupled import APP
from miniapps.coupled.checkpoint import KIND
from miniapps.runner.main import main
from miniapps.trace import TraceError, fingerprint, read
from miniapps.trace.chain import DIGEST, WAITING, Rows, next_head
from miniapps.trace.checked import Mixed, check
from miniapps.trace.heads import are_all, chains, checkpoint_file
from miniapps.untrusted import Refused
from miniapps.untrusted.result import RESULT, written
from miniapps.untrusted.sealed import sealed
from tests.tampering import altered

TINY = ["--closure", "none", "--guarantee", "layout", "--steps", "4", "--checkpoint-every", "2", "--quiet",
        "--set", "grid.nx=16", "--set", "grid.ny=16", "--set", "grid.bx=8", "--set", "grid.by=8"]  # fmt: skip


def launched(out, *options):
    """The exit code of a tiny run of `coupled` on one rank."""
    return main(APP, [*TINY, "--out", str(out), *options], MPI.COMM_SELF)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 4 steps with a checkpoint after every other."""
    out = tmp_path_factory.mktemp("chain") / "run"
    assert launched(out) == 0
    return out


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def heads_of(run):
    checked = check(run)
    (chain,) = checked.chains
    assert not checked.broken and not checked.contradictions
    return {mark.step: mark.head for mark in chain.marks}


def first_wrong(run):
    return [each.mark.step for each in check(run).broken]


def test_a_stated_number_of_repeats_is_not_unfolded(copy):
    """A set of 10^9 numbers takes 60 GB."""
    assert are_all({0, 1}, 2) and are_all(set(), 0) and not are_all({0, 2}, 2) and not are_all({0}, 10**9)
    path = copy / "rank-00000.h5"
    altered(path, lambda file: file.attrs.modify("repeats", 2 * 10**9))
    (copy / RESULT).unlink()
    with pytest.raises(TraceError, match="heads are missing"):
        check(copy)


def test_a_folder_of_checkpoints_that_leads_out_of_the_run_is_not_followed(copy, tmp_path, capsys):
    (copy / "checkpoints").rename(tmp_path / "elsewhere")
    (copy / "checkpoints").symlink_to(tmp_path / "elsewhere")
    assert analysis(["chain", str(copy)]) == 2
    assert "checkpoints: is a symbolic link" in capsys.readouterr().err


# ---- the elements

NAMES = ["vorticity", "energy"]


def digests(parts, after=-1):
    """Those of ranks that each add `parts` of fingerprints, sorted: lists of (step, name, block, hi)."""
    whole = b""
    for calls in parts:
        rows = Rows()
        rows.after = after
        for part in calls:
            step, name, block, hi = (np.array(column, np.int64) for column in zip(*part, strict=True))
            columns = {
                "step": step,
                "name": name,
                "block": block,
                "hi": hi.astype("u8"),
                "lo": hi.astype("u8"),
            }
            rows.add("fingerprints", columns, NAMES)
        whole += rows.take()
    return sorted(whole[k : k + DIGEST] for k in range(0, len(whole), DIGEST))


@given(st.permutations(range(6)), st.integers(1, 5), st.integers(0, 5))
def test_neither_owners_nor_flushes_nor_the_order_of_blocks_enter_the_digests(order, ranks, cut):
    rows = {block: [(step, 0, block, 100 * block + step) for step in (1, 2, 3)] for block in range(6)}
    straight = digests([[[row for step in range(3) for row in (rows[b][step] for b in range(6))]]])
    dealt = []
    for rank in range(ranks):
        own = [row for block in order if block % ranks == rank for row in rows[block]]
        dealt.append([part for part in (own[:cut], own[cut:]) if part])
    assert digests(dealt) == straight and len(set(straight)) == 6


@pytest.mark.parametrize(
    "other",
    [[(2, 0, 0, 7), (1, 0, 0, 7)], [(1, 0, 1, 7), (2, 0, 0, 7)], [(1, 1, 0, 7), (2, 0, 0, 7)],
     [(1, 0, 0, 8), (2, 0, 0, 7)], [(1, 0, 0, 7)], [(1, 0, 0, 7), (2, 0, 0, 7), (2, 0, 0, 7)]],
)  # fmt: skip
def test_step_name_block_bits_and_number_of_rows_enter_the_digests(other):
    assert digests([[[(1, 0, 0, 7), (2, 0, 0, 7)]]]) != digests([[other]])


def test_rows_before_the_checkpoint_that_a_run_continues_from_are_outside():
    assert digests([[[(1, 0, 0, 7), (2, 0, 0, 7)]]], after=1) == digests([[[(2, 0, 0, 7)]]])


def test_rows_that_are_too_many_to_be_held_have_the_digests_of_those_that_are(monkeypatch):
    parts = [
        [(step, name, block, 10 * step + block) for name in (0, 1) for block in range(3)] for step in range(5)
    ]
    held = digests([parts])
    for most in (0, 7):
        monkeypatch.setattr("miniapps.trace.chain.WAITING", most)
        assert digests([parts]) == held
    assert WAITING > 30 and len(held) == 6


def test_digests_enter_a_head_in_any_order_as_whole_bytes():
    rng = np.random.default_rng(1)
    each = [rng.bytes(DIGEST) for _ in range(50)] + [bytes(DIGEST), bytes(31) + b"a", b"a" + bytes(31)]
    given = [b"".join(each[k] for k in rng.permutation(len(each))) for _ in range(3)]
    head = hashlib.sha256(
        b"fpna-chain-3\n" + b"p" * 32 + bytes([7, *bytes(7)]) + b"".join(sorted(each)) + b"c" + b"q"
    )
    assert {next_head(b"p" * 32, 7, text, b"c", b"q") for text in given} == {head.digest()}


def test_each_part_of_a_head_changes_it():
    def head(previous=b"p" * 32, step=1, digests=b"d" * 64, kept=b"c" * 32, problem=b"q" * 32):
        return next_head(previous, step, digests, kept, problem)

    others = [
        head(b"x" * 32),
        head(step=2),
        head(digests=b"d" * 32),
        head(digests=b"d" * 63 + b"x"),
        head(kept=b"x" * 32),
        head(problem=b"x" * 32),
    ]
    assert len({head(), *others}) == 7


# ---- a run


def test_lines_result_trace_and_checkpoints_have_the_same_heads(run, tmp_path, capsys):
    assert launched(tmp_path / "run") == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("CHAIN ")]
    heads = heads_of(run)
    assert printed == [f"CHAIN step={step} head={heads[step]}" for step in (2, 4, 5)]
    stated = json.loads((run / RESULT).read_text())["chain"]
    assert [(each["step"], each["head"]) for each in stated] == list(heads.items())
    assert [read_checkpoint(run / checkpoint_file(0, step), KIND).head.chain for step in (2, 4)] == [
        heads[2],
        heads[4],
    ]


def test_a_run_that_continues_ends_with_the_head_of_the_straight_one(run, tmp_path):
    assert launched(tmp_path / "rest", "--restart", str(run / checkpoint_file(0, 2))) == 0
    heads = heads_of(run)
    assert heads_of(tmp_path / "rest") == {step: heads[step] for step in (4, 5)}


def test_repeats_have_chains_of_their_own(run, tmp_path):
    assert launched(tmp_path / "run", "--repeats", "2") == 0
    checked = check(tmp_path / "run")
    assert not checked.broken and [chain.repeat for chain in checked.chains] == [0, 1]
    assert all({mark.step: mark.head for mark in chain.marks} == heads_of(run) for chain in checked.chains)


@pytest.mark.parametrize(
    "options",
    [["--seed", "2"], ["--steps", "5"], ["--fingerprint", "sha256"], ["--fault", "bitflip@step=1,block=0"]],
)
def test_another_problem_or_state_has_other_heads_from_the_first(run, tmp_path, options):
    launched(tmp_path / "run", *options)
    assert not set(heads_of(tmp_path / "run").values()) & set(heads_of(run).values())


def test_what_is_no_record_of_states_is_outside(run, tmp_path):
    assert launched(tmp_path / "run", "--trace", "off", "--record", "messages") == 0
    assert heads_of(tmp_path / "run") == heads_of(run)


def test_a_killed_run_has_the_heads_that_it_came_to(run, tmp_path):
    assert launched(tmp_path / "run", "--fault", "raise@step=4,rank=0") == 1
    assert list(heads_of(tmp_path / "run").items()) == list(heads_of(run).items())[:1]


def test_fingerprints_by_sha256_are_half_of_it():
    x = np.array([1.0, -0.0])
    assert fingerprint(x, "sha256") != fingerprint(-x, "sha256") != fingerprint(x)
    assert len(fingerprint(x, "sha256")) == 16
    with pytest.raises(ValueError, match="there are xxh3, sha256"):
        fingerprint(x, "md5")


def test_a_run_by_sha256_continues_from_its_checkpoint(tmp_path, capsys):
    assert launched(tmp_path / "a", "--fingerprint", "sha256") == 0
    more = ["--fingerprint", "sha256", "--restart", str(tmp_path / "a" / checkpoint_file(0, 2))]
    loud = [word for word in TINY if word != "--quiet"]
    assert main(APP, [*loud, "--no-progress", "--out", str(tmp_path / "b"), *more], MPI.COMM_SELF) == 0
    assert "equal to the trace of" in capsys.readouterr().err


# ---- what was changed afterwards


def test_the_bytes_of_a_trace_are_sealed(run):
    image = (run / "rank-00000.h5").read_bytes()
    where = sealed(image, "trace")
    for place in (*range(512), *range(512, len(image), 17)):  # of the seal itself every one
        other = bytearray(image)
        other[place] ^= 1 << place % 8
        try:
            assert sealed(bytes(other), "trace") != where, place
        except Refused:
            continue


COLUMNS = [
    *[("fingerprints", c) for c in ("repeat", "step", "name", "block", "hi", "lo")],
    *[("values", c) for c in ("repeat", "step", "name", "block", "value")],
]


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_every_byte_of_a_row_is_chained_or_refused_where_all_hashes_were_made_to_fit(copy, table, column):
    path = copy / "rank-00000.h5"
    before, trace = path.read_bytes(), read(path)
    rows = trace.tables[table][column]
    steps = trace.tables[table]["step"]
    for row in (0, len(rows) // 2, len(rows) - 1):
        for byte in range(rows.itemsize):

            def change(file, row=row, byte=byte):
                array = file[table][column][...]
                array.view(np.uint8).reshape(len(array), -1)[row, byte] ^= 0x11
                file[table][column][...] = array

            altered(path, change)
            try:
                checked = check(copy)
            except TraceError:
                pass
            else:
                (chain,), broken = checked.chains, checked.broken
                marks = [mark.step for mark in chain.marks]
                assert broken, (row, byte)
                after = next(step for step in marks if steps[row] <= step)
                assert column == "step" or broken[0].mark.step == after
            path.write_bytes(before)


def test_a_row_that_goes_or_comes_is_noticed(copy):
    def drop(file):
        for column in file["values"].values():
            kept = column[:-1]
            column.resize(len(kept), axis=0)

    altered(copy / "rank-00000.h5", drop)
    assert first_wrong(copy) == [5]


def test_heads_that_were_made_to_fit_the_trace_are_not_those_of_the_result(copy):
    result = json.loads((copy / RESULT).read_text())
    result["chain"][1]["head"] = "0" * 64
    result.pop("digest")
    (copy / RESULT).write_text(written(result))
    assert first_wrong(copy) == [4]


def test_a_checkpoint_in_place_of_another_is_noticed(copy, tmp_path):
    assert launched(tmp_path / "other", "--seed", "2") == 0
    shutil.copy(tmp_path / "other" / checkpoint_file(0, 2), copy / checkpoint_file(0, 2))
    with pytest.raises(Mixed, match=r"step-000002.h5 has the head .*: the file is of another run"):
        check(copy)


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        (("chain:head", "chain:state"), "heads are missing"),
        (("chain:head",), "a head without the hash of its"),
    ],
)
def test_a_run_without_its_last_head_is_refused(copy, gone, why):
    def change(file):
        names = [json.loads(line) for line in file["names/text"][...].tobytes().decode().splitlines()]
        rows = file["fingerprints"]
        numbers = [names.index(name) for name in gone]
        kept = ~np.isin(rows["name"][...], numbers) | (rows["step"][...] != 5)
        for column in rows.values():
            values = column[...][kept]
            column.resize(len(values), axis=0)
            column[...] = values

    altered(copy / "rank-00000.h5", change)
    with pytest.raises(TraceError, match=why):
        check(copy)


def test_heads_of_another_version_are_refused_by_name(copy, capsys):
    altered(copy / "rank-00000.h5", lambda file: file.attrs.__delitem__("chain"))
    assert analysis(["chain", str(copy)]) == 2
    assert "its heads have version 'fpna-chain-1', and this program knows" in capsys.readouterr().err


def test_the_trace_says_what_the_chain_cost(run):
    trace = read(run / "rank-00000.h5", ["usage"])
    usage = trace.tables["usage"]
    own = usage["name"] == trace.names.index("chain_cpu")
    assert usage["step"][own].tolist() == [2, 4, 5]
    assert 0 < usage["value"][own].sum() < json.loads((run / RESULT).read_text())["cpu_s"]


# ---- the command


def test_the_command_says_which_head_is_wrong(run, copy, capsys):
    assert analysis(["chain", str(run)]) == 0
    assert f"3 heads follow from the records; the last is {heads_of(run)[5]}" in capsys.readouterr().out
    altered(copy / "rank-00000.h5", lambda file: file["values"]["value"].__setitem__(-1, 0.5))
    assert analysis(["chain", str(copy)]) == 3
    out = capsys.readouterr().out
    assert out.startswith("step 5: the head is") and "it is over the steps 5 to 5" in out


def test_published_heads_show_a_chain_that_was_made_anew(run, tmp_path, capsys):
    printed = tmp_path / "output.txt"
    printed.write_text("noise\n" + "".join(f"CHAIN step={s} head={h}\n" for s, h in heads_of(run).items()))
    assert launched(tmp_path / "other", "--seed", "2") == 0
    assert analysis(["chain", str(run), "--published", str(printed)]) == 0
    assert analysis(["chain", str(tmp_path / "other"), "--published", str(printed)]) == 3
    assert "was published" in capsys.readouterr().out
    printed.write_text("nothing\n")
    assert analysis(["chain", str(run), "--published", str(printed)]) == 2


def test_chains_are_no_part_of_what_runs_are_compared_in(run, tmp_path, capsys):
    assert launched(tmp_path / "other", "--checkpoint-every", "3") == 0
    assert analysis(["divergence", str(run), str(tmp_path / "other"), "--no-cache"]) == 0
    assert launched(tmp_path / "sha", "--fingerprint", "sha256") == 0
    assert analysis(["divergence", str(run), str(tmp_path / "sha"), "--no-cache"]) == 0
    assert chains(read(run / "rank-00000.h5"))
    capsys.readouterr()
