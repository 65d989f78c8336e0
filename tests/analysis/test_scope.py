"""The scope of a guarantee: runs with other processors, libraries or settings neither keep nor break it."""

import json

import pytest

from analysis import comparison
from analysis.__main__ import main
from analysis.clauses import clause
from analysis.divergence.cause import cause
from analysis.divergence.compare import compare
from analysis.environment import by_environment
from analysis.headline import headline
from analysis.lint.rules import lint
from analysis.load.frames import load
from analysis.matrix import matrix
from analysis.overview import Overview
from analysis.page.sections import SIGNS
from analysis.results import results
from analysis.verdict import BROKEN, HOLDS, MEANING, OUTSIDE, SAME, UNTESTED, judge
from benchmarks.apps import settings
from kernels.guarantees import LEVELS, SCOPE, WHY
from miniapps.system.scope import apart, mixed
from miniapps.trace import Tracer
from tests.analysis.synthetic import attributes, flip_bit, write_run

HERE = {
    "cpu": "A", "instructions": "x86-64-v4", "python": "3.11.1", "sources": "s1", "mpi": "MPICH", "pid": 7,
    "packages": {"numpy": "2.0", "h5py": "3"}, "arithmetic": {"numpy": "X86_V3", "torch": "AVX512"},
    "variables": {"OMP_NUM_THREADS": "1"},
}  # fmt: skip
SETTING = {"variables": {"ATEN_CPU_CAPABILITY": "default"}, "arithmetic": {"torch": "DEFAULT"}}


def machine(**changed):
    """The environment HERE with some entries changed, those of dicts one by one."""
    environment = json.loads(json.dumps(HERE))
    for key, value in changed.items():
        environment[key] = environment[key] | value if isinstance(value, dict) else value
    return {"environment": environment}


def flip(block, at=2):
    def change(repeat, step, field):
        if step >= at:
            flip_bit(field, block)

    return change


def only(frames):
    (group,) = judge(frames)
    return group


OTHERS = [
    {"cpu": "B"}, {"instructions": "x86-64-v3"}, {"python": "3.12.0"}, {"sources": "s2"},
    {"packages": {"numpy": "2.1"}}, {"arithmetic": {"torch": "AVX2"}}, {"variables": {"MKL_CBWR": "AVX2"}},
    {"variables": {"GLIBC_TUNABLES": "x"}}, {"variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}},
    {"variables": {"LD_PRELOAD": "x.so"}},
]  # fmt: skip


@pytest.mark.parametrize("other, differ", [
    (OTHERS[0], False), *((other, True) for other in OTHERS[:6]),
    *(pytest.param(other, True, marks=pytest.mark.slow) for other in OTHERS[6:]),
])  # fmt: skip
def test_runs_of_another_environment_neither_keep_nor_break_a_promise(tmp_path, other, differ):
    write_run(tmp_path / "a", guarantee="layout", **machine())
    write_run(tmp_path / "b", guarantee="layout", change=flip(3) if differ else None, **machine(**other))
    group = only(load([tmp_path]))
    assert group.verdict == OUTSIDE
    text = clause(group)
    assert "2 environments, for which nothing is promised" in text
    assert ("first at step 2, vorticity, block 3" in text) == differ and ("the same bits" in text) != differ


@pytest.mark.parametrize(
    "same", [{"mpi": "Open MPI"}, {"pid": 8}, {"packages": {"h5py": "4"}}, {"node": "n2"}]
)
def test_what_no_bit_depends_on_is_no_other_environment(tmp_path, same):
    write_run(tmp_path / "a", guarantee="layout", **machine())
    write_run(tmp_path / "b", guarantee="layout", change=flip(3), **machine(**same))
    assert only(load([tmp_path])).verdict == BROKEN


def test_a_promise_is_broken_where_runs_of_one_environment_differ_whatever_others_do(tmp_path):
    for name, changed, there in (("a", None, {}), ("b", flip(1), {}), ("c", None, {"cpu": "B"})):
        write_run(tmp_path / name, guarantee="layout", change=changed, **machine(**there))
    group = only(load([tmp_path]))
    assert group.verdict == BROKEN and "first at step 2, vorticity, block 1" in clause(group)


def test_runs_that_keep_a_promise_in_each_of_several_environments_are_not_said_to_hold(tmp_path, capsys):
    for i, there in enumerate(({}, {}, SETTING, SETTING)):
        change = flip(4) if there else None
        write_run(tmp_path / f"r{i}", guarantee="layout", size=1 + i % 2, change=change, **machine(**there))
    frames = load([tmp_path])
    group = only(frames)
    assert (group.verdict, group.distinct) == (OUTSIDE, 2)
    summary = str(headline([group], frames))
    assert "variables.ATEN_CPU_CAPABILITY: not set; default" in summary and "BROKEN" not in summary
    assert set(matrix(frames, [group])["verdict"]) == {OUTSIDE}
    assert set(SIGNS) == set(MEANING)
    assert set(results(Overview(frames))["verdict"]) == {OUTSIDE}
    assert main(["variability", str(tmp_path)]) == 0
    assert "for which nothing is promised" in capsys.readouterr().out


def test_without_a_promise_another_environment_changes_no_verdict(tmp_path):
    write_run(tmp_path / "a", **machine())
    write_run(tmp_path / "b", **machine(cpu="B"))
    assert only(load([tmp_path])).verdict == SAME


def test_threads_of_libraries_are_part_of_what_run_promises_and_not_of_layout(tmp_path):
    for guarantee, verdict in (("run", OUTSIDE), ("layout", HOLDS), ("exact", HOLDS)):
        for name, threads in (("a", "1"), ("b", "4")):
            there = machine(variables={"OPENBLAS_NUM_THREADS": threads})
            write_run(tmp_path / guarantee / name, guarantee=guarantee, ordering="exact", **there)
        assert only(load([tmp_path / guarantee])).verdict == verdict


def write_mixed(out, environments, guarantee="layout"):
    """A run whose ranks have `environments`."""
    out.mkdir(parents=True)
    size = len(environments)
    for rank, own in enumerate(environments):
        given = attributes(rank, size, guarantee, "exact", run_id=str(out), **own)
        with Tracer(out / f"rank-{rank:05d}.h5", given, size=size) as tracer:
            tracer.at(0, 0)
            tracer.fingerprint("u", rank, bytes(16))
    return out


def test_a_run_whose_ranks_differ_is_in_no_one_environment(tmp_path):
    for name in "ab":
        write_mixed(tmp_path / name, [machine(), machine(cpu="B")])
    group = only(load([tmp_path]))
    assert group.verdict == OUTSIDE and "cpu: A | B on the ranks of one run" in clause(group)
    for name in "ab":
        write_mixed(tmp_path / "same" / name, [machine(), machine(pid=8)])
    assert only(load([tmp_path / "same"])).verdict == HOLDS


def test_a_library_that_one_rank_had_no_use_for_is_no_other_environment(tmp_path):
    without = machine()
    del without["environment"]["arithmetic"]["torch"]
    for name in "ab":
        write_mixed(tmp_path / name, [machine(), without])
    write_mixed(tmp_path / "c", [without, without])
    assert only(load([tmp_path])).verdict == HOLDS


def test_libraries_that_only_some_runs_loaded_tell_those_apart_that_did(tmp_path):
    without = machine()
    del without["environment"]["arithmetic"]["torch"]
    write_run(tmp_path / "a", guarantee="layout", **without)
    write_run(tmp_path / "b", guarantee="layout", **machine())
    assert only(load([tmp_path])).verdict == HOLDS
    write_run(tmp_path / "c", guarantee="layout", **machine(arithmetic={"torch": "AVX2"}))
    group = only(load([tmp_path]))
    assert (
        group.verdict == OUTSIDE
        and "2 environments" in clause(group)
        and "arithmetic.torch: " in clause(group)
    )


def test_long_values_and_many_entries_are_cut(tmp_path):
    many = {"variables": {f"ONEDNN_{i}": "x" * 5000 for i in range(9)}}
    write_run(tmp_path / "a", guarantee="layout", **machine())
    write_run(tmp_path / "b", guarantee="layout", change=flip(1), **machine(**many))
    frames = load([tmp_path])
    assert len(clause(only(frames))) < 1000 and "and 5 more" in clause(only(frames))
    assert len("".join(cause(frames, compare(frames, ("a", 0), ("b", 0))).why)) < 1500


def test_one_run_alone_is_still_not_tested(tmp_path):
    write_run(tmp_path / "a", guarantee="layout", **machine())
    assert only(load([tmp_path])).verdict == UNTESTED


def test_every_level_says_what_it_takes_for_granted_and_why():
    assert tuple(SCOPE) == LEVELS and SCOPE["none"] == ()
    assert {aspect for scope in SCOPE.values() for aspect in scope} == set(WHY)


def test_runs_that_hold_over_any_processor_are_judged_together_and_libraries_still_count(tmp_path):
    anywhere = {"holds_over": "any"}
    others = {"cpu": "B", "instructions": "x86-64-v3", **SETTING}
    for name, change, there in (("a", None, {}), ("b", None, others)):
        write_run(
            tmp_path / "equal" / name, guarantee="layout", change=change, **machine(**anywhere, **there)
        )
    assert only(load([tmp_path / "equal"])).verdict == HOLDS
    for name, change, there in (("a", None, {}), ("b", flip(3), others)):
        write_run(
            tmp_path / "apart" / name, guarantee="layout", change=change, **machine(**anywhere, **there)
        )
    assert only(load([tmp_path / "apart"])).verdict == BROKEN
    for name, there in (("a", {}), ("b", {"packages": {"numpy": "2.1"}})):
        write_run(tmp_path / "newer" / name, guarantee="layout", **machine(**anywhere, **there))
    frames = load([tmp_path / "newer"])
    assert only(frames).verdict == OUTSIDE
    (remedy,) = [text for text in lint(Overview(frames))["remedy"] if "layout holds for" in text]
    assert remedy.startswith("layout holds for one set of libraries; ")
    for name in "ab":
        write_mixed(tmp_path / "ranks" / name, [machine(**anywhere), machine(cpu="B", **anywhere)])
    assert only(load([tmp_path / "ranks"])).verdict == HOLDS
    for name, there in (("a", anywhere), ("b", {"cpu": "B"})):
        write_run(tmp_path / "one" / name, guarantee="layout", **machine(**there))
    assert only(load([tmp_path / "one"])).verdict == OUTSIDE


def test_environments_of_many_runs_are_told_apart(tmp_path):
    for i, cpu in enumerate("ABABC"):
        write_run(tmp_path / f"r{i}", guarantee="layout", **machine(cpu=cpu))
    runs = load([tmp_path]).runs
    assert by_environment(runs, "layout") == [[0, 2], [1, 3], [4]]
    assert by_environment(runs, "none") == [[0, 1, 2, 3, 4]]
    one, other = (json.loads(text) for text in runs["environment"][:2])
    assert apart(one, other, "layout") == [("cpu", "A", "B")] and mixed(one, "layout") == []


# ---- the cause, and what is wrong with the experiment


def test_the_cause_is_the_environment_before_a_kernel_and_says_both_values(tmp_path):
    write_run(tmp_path / "a", guarantee="layout", **machine())
    write_run(tmp_path / "b", guarantee="layout", change=flip(3), **machine(**SETTING))
    frames = load([tmp_path])
    divergence = compare(frames, ("a", 0), ("b", 0))
    judged = cause(frames, divergence)
    assert judged.kind == "environment" and judged.instead == "local kernel"
    assert "variables.ATEN_CPU_CAPABILITY is not set in a:0, default in b:0" in judged.why
    assert "arithmetic.torch is AVX512 in a:0, DEFAULT in b:0" in judged.why
    facts = dict(comparison.facts(divergence, frames))
    assert facts["cause"].startswith("environment: arithmetic.torch, variables.ATEN_CPU_CAPABILITY")
    assert facts["or"].startswith("local kernel: it shows first in ")


def test_equal_runs_of_several_environments_are_said_to_be_unlike(tmp_path, capsys):
    write_run(tmp_path / "a", guarantee="layout", **machine())
    write_run(tmp_path / "b", guarantee="layout", **machine(**SETTING))
    write_run(tmp_path / "c", guarantee="layout", **machine())
    assert main(["divergence", *(str(tmp_path / name) for name in "abc")]) == 0
    _, first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "unlike" and "ATEN_CPU_CAPABILITY is not set in a:0, default in b:0" in first
    assert second.startswith("a:0 and c:0 are equal")


def test_the_cause_is_the_method_where_it_differs(tmp_path):
    write_run(tmp_path / "a", guarantee="run", ordering="ring", **machine())
    ring = {"run.allreduce": "recursive-doubling", "run.device": "cuda"}
    write_run(
        tmp_path / "b",
        guarantee="run",
        ordering="recursive-doubling",
        change=flip(3),
        method=ring,
        **machine(),
    )
    frames = load([tmp_path])
    judged = cause(frames, compare(frames, ("a", 0), ("b", 0)))
    assert judged.kind == "method" and judged.name == "ordering, device"
    assert "ordering is ring in a:0, recursive-doubling in b:0" in judged.why


def test_a_fault_a_replay_and_another_rank_count_are_no_other_method(tmp_path):
    write_run(tmp_path / "a", guarantee="run", **machine())
    fault = {"run.fault": ["bitflip@step=2,block=3"], "run.replay": "a"}
    write_run(tmp_path / "b", size=3, guarantee="run", change=flip(3), method=fault, **machine())
    frames = load([tmp_path])
    assert cause(frames, compare(frames, ("a", 0), ("b", 0))).kind == "local kernel"


def test_the_linter_names_environments_under_a_promise(tmp_path):
    for name, there in (("a", {}), ("b", SETTING)):
        write_run(tmp_path / name, guarantee="layout", **machine(**there))
        write_run(tmp_path / f"none-{name}", **machine(**there))
    findings = lint(Overview(load([tmp_path])))
    (row,) = findings[findings["rule"] == "outside-the-promise"].itertuples()
    assert row.where == "coupled layout/arrival" and "ATEN_CPU_CAPABILITY: not set; default" in row.found
    assert "one processor, one set of libraries, one set of settings" in row.remedy


# ---- a real run


@pytest.mark.slow
def test_a_real_setting_is_recorded_puts_the_run_outside_and_is_its_cause(tmp_path):
    pytest.importorskip("torch")
    chosen, case = [settings.BASE, "ATEN_CPU_CAPABILITY=default"], "coupled, surrogate"
    settings.run(tmp_path, chosen, [case])
    frames = load([tmp_path], keep=False)
    group = only(frames)
    assert group.guarantee == "layout" and group.verdict == OUTSIDE
    a, b = (json.loads(text) for text in frames.runs["environment"])
    assert b["variables.ATEN_CPU_CAPABILITY"] == "default" and b["arithmetic.torch"] == "DEFAULT"
    assert "variables.ATEN_CPU_CAPABILITY" not in a
    divergence = compare(frames, *zip(frames.runs["run"], frames.runs["repeat"], strict=True))
    assert divergence.differs == (
        a["arithmetic.torch"] != "DEFAULT"
    )  # where the processor has more, it enters the bits
    if divergence.differs:
        judged = cause(frames, divergence)
        assert judged.kind == "environment" and "variables.ATEN_CPU_CAPABILITY" in judged.name
