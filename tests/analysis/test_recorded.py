"""Records that both runs must have: without them, runs are neither equal nor a broken promise."""

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.clauses import clause
from analysis.divergence.compare import compare
from analysis.factors import by_factor
from analysis.headline import headline
from analysis.load.frames import load
from analysis.matrix import ALL, matrix
from analysis.report.build import build
from analysis.studies.growth.runs import cell_growths, equal_cells
from analysis.variability import variability
from analysis.verdict import BROKEN, DIFFERS, HOLDS, INCOMPARABLE, SAME, judge
from miniapps.trace import Tracer
from miniapps.trace.records import ADDED, LEFT, TOTAL
from tests.analysis import stated
from tests.analysis.said import comparison_lines
from tests.analysis.synthetic import BLOCKS, CONFIG, METHOD, STEPS, attributes, flip_bit, owners, write_run

ROWS = STEPS * (3 * BLOCKS + 1)  # of `write_run`


def write(
    out, size=1, lacks=lambda step, name, block: False, changed=(), steps=3, config=None, extra=(), **more
):
    """A run of the names `u` (4 blocks) and `energy`, and of the names in `extra`; `lacks` says which rows it has not,
    `changed` which have other bits."""
    out.mkdir(parents=True)
    owner = owners(4, size)
    for rank in range(size):
        given = {
            "guarantee": "layout",
            "ordering": "exact",
            "run_id": str(out),
            "config": CONFIG | (config or {}),
        } | more
        with Tracer(out / f"rank-{rank:05d}.h5", attributes(rank, size, **given), size=size) as tracer:
            for step in range(steps):
                tracer.at(0, step)
                for name in ("u", *extra):
                    for block in (
                        np.flatnonzero(owner == rank) if name == "u" or name.startswith(LEFT) else [-1]
                    ):
                        if not lacks(step, name, block):
                            bits = (step, name, int(block)) in changed
                            whose = name.format(rank=rank, size=size)
                            tracer.fingerprint(whose, int(block), bytes([bits] * 16))
                if rank == 0 and not lacks(step, "energy", -1):
                    tracer.value("energy", float((step, "energy", -1) in changed))
    return out


def pair(tmp_path, one=None, other=None):
    write(tmp_path / "a", **(one or {}))
    write(tmp_path / "b", **(other or {}))
    frames = load([tmp_path])
    return frames, compare(frames, ("a", 0), ("b", 0))


def only(frames):
    (group,) = judge(frames)
    return group


@pytest.mark.parametrize(
    ("lacks", "at", "count"),
    [
        (lambda step, name, block: step == 1 and block == 2, (1, "u", 2), 1),
        (lambda step, name, block: step == 2, (2, "u", 0), 5),
        (lambda step, name, block: name == "u", (0, "u", 0), 12),
        (lambda step, name, block: name == "energy", (0, "energy", -1), 3),
    ],
)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_run_that_lacks_records_is_not_comparable_and_the_first_is_named(
    tmp_path, lacks, at, count, first, size
):
    damaged = {"lacks": lacks, "size": size}
    frames, divergence = pair(tmp_path, *((damaged, {}) if first else ({}, damaged)))
    assert not (divergence.equal or divergence.differs or divergence.comparable)
    assert (divergence.lacks_a, divergence.lacks_b) == ((count, 0) if first else (0, count))
    assert (divergence.lone.step, divergence.lone.name, divergence.lone.block) == at
    assert divergence.lone.run == (("b", 0) if first else ("a", 0))
    assert only(frames).verdict == INCOMPARABLE


def test_where_common_records_differ_the_runs_differ_whatever_is_missing(tmp_path):
    lacks = {"lacks": lambda step, name, block: step == 2}
    frames, divergence = pair(tmp_path, lacks, {"changed": {(1, "u", 3)}})
    assert (
        divergence.differs
        and divergence.comparable
        and (divergence.first.step, divergence.first.block) == (1, 3)
    )
    assert only(frames).verdict == BROKEN


def test_other_names_of_what_was_recorded_are_no_equality(tmp_path, capsys):
    write_run(tmp_path / "a", guarantee="layout")
    write_run(tmp_path / "b", guarantee="layout", names=("vorticitx", "streamfunctiom"))
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    streams = capsys.readouterr()
    lost = STEPS * 2 * BLOCKS
    assert f"b:0 ({ROWS} records) lacks {lost} of the {ROWS} of a:0" in streams.out
    assert f"a:0 ({ROWS} records) lacks {lost} of the {ROWS} of b:0" in streams.out
    assert "is at step 0, vorticity, block 0" in streams.out and "are equal" not in streams.out
    assert "no verdict" in streams.err
    frames = load([tmp_path])
    summary = str(headline(judge(frames), frames))
    assert "cannot be compared" in summary and "1 group with runs that lack records" in summary
    assert "the same" not in summary


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("guarantee, whole", [("none", SAME), ("layout", HOLDS)])
def test_a_run_cut_short_but_marked_complete_is_neither_equal_nor_broken(tmp_path, capsys, guarantee, whole):
    for name in "ab":
        write_run(tmp_path / name, guarantee=guarantee)
    assert only(load([tmp_path])).verdict == whole
    write_run(tmp_path / "c", guarantee=guarantee, steps=4)
    frames = load([tmp_path])
    group = only(frames)
    assert group.verdict == INCOMPARABLE and "c:0 (148 records) lacks 74 of the 222 of a:0" in clause(group)
    table = matrix(frames, [group])
    assert table["verdict"].tolist() == [INCOMPARABLE, INCOMPARABLE if guarantee == "layout" else ""]
    assert table["bound"].isna().all() and set(table["size"]) == {2, ALL}
    if guarantee == "layout":
        report = build(frames)
        assert "NOT COMPARABLE" in report.html and "cannot be compared" in report.html
    assert main(["divergence", *(str(tmp_path / name) for name in "ac")]) == 2
    assert main(["variability", str(tmp_path)]) == 0
    assert "cannot be compared" in capsys.readouterr().out
    assert variability(frames)["bound"].isna().all()  # nor is any name said to have no difference
    assert by_factor(frames, "ordering")["note"].tolist() == ["records are missing: not comparable"]
    assert equal_cells(cell_growths(frames)) == {}


def test_a_final_record_that_one_run_lacks_is_no_other_result(tmp_path):
    last = {"lacks": lambda step, name, block: step == 2 and block == 3}
    frames, _ = pair(tmp_path, other=last)
    group = only(frames)
    assert (group.distinct, group.verdict) == (1, INCOMPARABLE)


def test_a_run_that_lacks_all_that_the_other_has_is_not_comparable(tmp_path):
    frames, divergence = pair(
        tmp_path, {"lacks": lambda *row: row[1] == "u"}, {"lacks": lambda *row: row[1] != "u"}
    )
    assert (divergence.compared, divergence.comparable) == (0, False)
    assert only(frames).verdict == INCOMPARABLE


def test_repeats_of_one_run_must_have_the_same_records(tmp_path):
    write_run(tmp_path / "a", repeats=2, guarantee="run")
    assert only(load([tmp_path])).verdict == HOLDS
    out = tmp_path / "damaged" / "b"
    out.mkdir(parents=True)
    with Tracer(out / "rank-00000.h5", attributes(0, 1, "run", "x", run_id="b", repeats=2)) as tracer:
        for repeat, blocks in enumerate((3, 2)):
            tracer.at(repeat, 0)
            for block in range(blocks):
                tracer.fingerprint("u", block, bytes(16))
    assert only(load([tmp_path / "damaged"])).verdict == INCOMPARABLE


# ---- what runs may lack


def test_records_of_messages_may_be_missing_where_only_one_run_was_to_record_them(tmp_path, capsys):
    watched = {"config": {"run": {"seed": 1, "record": "messages"}}, "extra": (LEFT + "u", TOTAL + "s")}
    plain = {"config": {"run": {"seed": 1, "record": "state"}}}
    frames, divergence = pair(tmp_path, watched, plain)
    assert divergence.equal and (divergence.compared, divergence.only_a, divergence.only_b) == (15, 15, 0)
    phrase = "in what both recorded (15 of 30 and 15 records; run.record: messages, state)"
    assert phrase in comparison_lines(divergence, frames)[0]
    group = only(frames)
    assert group.verdict == HOLDS and phrase in clause(group)
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert phrase in capsys.readouterr().out


def test_records_of_messages_must_be_in_both_where_both_were_to_record_them(tmp_path):
    watched = {"config": {"run": {"seed": 1, "record": "messages"}}, "extra": (LEFT + "u", TOTAL + "s")}
    _, divergence = pair(
        tmp_path, watched, watched | {"size": 2, "lacks": lambda *row: row[:2] == (1, TOTAL + "s")}
    )
    assert not divergence.comparable and divergence.lone.name == TOTAL + "s"


def test_contributions_of_whole_ranks_belong_to_a_layout(tmp_path):
    whole = (ADDED + "s by rank {rank} of {size}",)
    shuffled = {"method": {"run.shuffle_blocks": 3}}
    changed = {(1, whole[0], -1)}
    frames, divergence = pair(tmp_path, {"extra": whole}, {"extra": whole, "size": 3})
    assert divergence.equal and divergence.recordings == ("the layout",)
    for name, more in (("c", shuffled), ("d", {})):
        write(tmp_path / name, extra=whole, changed=changed, **more)
    frames = load([tmp_path])
    assert compare(frames, ("a", 0), ("c", 0)).equal  # other owners: what a rank adds is something else
    assert compare(frames, ("a", 0), ("d", 0)).differs


@pytest.mark.parametrize(
    ("option", "values", "name"),
    [
        ("record.true_every", (0, 2), "true_residual"),
        ("record.error", (True, False), "error"),
        ("drift.samples", (0, 4), "difference"),
        ("method.samples", (2, 9), "sum:ao:native:10"),
    ],
)
def test_an_option_that_decides_on_rows_allows_for_those_rows_alone(tmp_path, option, values, name):
    section, _, key = option.partition(".")

    def run(out, value, numbers, blocks=4):
        out.mkdir()
        given = {"run_id": str(out), "config": CONFIG | {section: {key: value}}}
        with Tracer(out / "rank-00000.h5", attributes(0, 1, "layout", "exact", **given)) as tracer:
            for step in range(3):
                tracer.at(0, step)
                tracer.fingerprints("u", range(blocks), np.zeros((blocks, 2)))
                for number in numbers:
                    tracer.value(number, 1.0)

    run(tmp_path / "a", values[0], ["residual"])
    run(tmp_path / "b", values[1], ["residual", name])
    run(tmp_path / "c", values[1], ["residual"])
    run(tmp_path / "d", values[0], ["residual", name], blocks=3)
    frames = load([tmp_path])
    assert compare(frames, ("a", 0), ("b", 0)).equal
    assert not compare(frames, ("c", 0), ("b", 0)).comparable  # told alike
    assert not compare(frames, ("b", 0), ("d", 0)).comparable  # the option does not decide on blocks


def test_a_restarted_run_must_have_all_later_steps(tmp_path):
    restart = CONFIG | {"output": {"restart": "checkpoint.h5"}}
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", first_step=3, config=restart)
    write_run(tmp_path / "c", first_step=3, config=restart, steps=5)
    frames = load([tmp_path])
    assert compare(frames, ("a", 0), ("b", 0)).equal
    divergence = compare(frames, ("a", 0), ("c", 0))
    assert not divergence.comparable and (divergence.lone.run, divergence.lone.step) == (("a", 0), 5)


def test_a_run_that_stops_before_its_problem_ends_must_have_all_steps_until_then(tmp_path):
    known = {"options": stated.options(METHOD, CONFIG) | {"work.until": {"effect": "until"}}}

    def stopping(until):
        return known | {"config": {"work": {"until": until}}}

    whole = stopping(None) | {"steps": 8}  # step 4 of a run until step 3 is the state that it ends with
    stopped = stopping(3) | {"steps": 5, "lacks": lambda step, name, block: (step, name) == (4, "energy")}
    frames, divergence = pair(tmp_path, whole, stopped)
    assert divergence.equal and divergence.recordings == ("over steps 0..3",) and divergence.compared == 24
    phrase = "b:0 are equal in what both recorded (24 of 40 and 24 records; over steps 0..3)"
    assert phrase in comparison_lines(divergence, frames)[0]
    assert only(frames).verdict == HOLDS and "over steps 0..3" in clause(only(frames))
    write(tmp_path / "c", **stopped | {"lacks": lambda step, name, block: (step, block) == (3, 2)})
    write(tmp_path / "d", **stopped | {"changed": {(4, "u", 1)}})
    write(tmp_path / "e", **stopped | {"steps": 4})
    write(tmp_path / "f", **whole | stopping(["no step"]))
    frames = load([tmp_path])
    lone = compare(frames, ("a", 0), ("c", 0)).lone
    assert (lone.run, lone.step, lone.block) == (("a", 0), 3, 2)
    assert compare(frames, ("a", 0), ("d", 0)).first.step == 4
    assert not compare(frames, ("b", 0), ("e", 0)).comparable  # both until step 3: both must have all
    assert compare(frames, ("a", 0), ("f", 0)).equal


def test_another_variant_of_reductions_may_be_alone(tmp_path):
    def run(out, promises, names):
        out.mkdir()
        given = {"run_id": str(out), "app": "reductions", "promises": promises}
        with Tracer(out / "rank-00000.h5", attributes(0, 1, "run", "x", **given)) as tracer:
            tracer.at(0, 0)
            for name in names:
                tracer.value(f"sum:{name}:native:10", 1.0, 0)

    one, two = {"sum:a:native": "run"}, {"sum:a:native": "run", "sum:b:native": "run"}
    run(tmp_path / "a", one, "a")
    run(tmp_path / "b", two, "ab")
    run(tmp_path / "c", two, "a")
    frames = load([tmp_path])
    assert compare(frames, ("a", 0), ("b", 0)).equal
    assert not compare(frames, ("b", 0), ("c", 0)).comparable


def test_another_ordering_keeps_the_states_and_another_method_need_not(tmp_path):
    def lacks(step, name, block):
        return step == 2

    write(tmp_path / "a")
    write(tmp_path / "b", lacks=lacks, ordering="ring", method={"run.allreduce": "ring"})
    write(tmp_path / "c", lacks=lacks, method={"solve.method": "cg-pipelined"})
    frames = load([tmp_path])
    assert not compare(frames, ("a", 0), ("b", 0)).comparable
    divergence = compare(frames, ("a", 0), ("c", 0))
    assert divergence.equal and any("cg-pipelined" in recording for recording in divergence.recordings)


def test_an_incomplete_run_lacks_nothing_that_counts_and_differs_where_it_does(tmp_path):
    def flip(repeat, step, field):
        if step == 2:
            flip_bit(field, 4)

    write_run(tmp_path / "a", guarantee="layout")
    write_run(tmp_path / "b", guarantee="layout", stop={0: 4}, result=False)
    write_run(tmp_path / "c", guarantee="layout", stop={0: 4}, result=False, change=flip)
    frames = load([tmp_path])
    assert compare(frames, ("a", 0), ("b", 0)).comparable
    assert compare(frames, ("a", 0), ("c", 0)).first.step == 2
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "c")]) == 3


def test_without_a_promise_a_difference_is_one_whatever_is_missing(tmp_path):
    frames, _ = pair(
        tmp_path,
        {"guarantee": "none", "lacks": lambda step, name, block: step == 2},
        {"guarantee": "none", "changed": {(0, "energy", -1)}},
    )
    assert only(frames).verdict == DIFFERS
