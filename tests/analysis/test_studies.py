"""Every study of two problems at once, each in two ways: its tables, sections and figures are drawn for all of them."""

import re
from functools import partial

import numpy as np
import pytest

from analysis import studies
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.page.words import in_words
from analysis.report.build import build
from tests.analysis.answers_runs import write_answers
from tests.analysis.audits_runs import case, write_audit
from tests.analysis.json_runs import classes, drifting, scaled
from tests.analysis.mesh_runs import PLAN, write_mesh
from tests.analysis.nodes_runs import write_over_nodes
from tests.analysis.solves_runs import FALLING, solve, studied, write_solves
from tests.analysis.sums_runs import write_sums
from tests.analysis.synthetic import write_run, write_timed
from tests.analysis.training_runs import write_training
from tests.analysis.watched_runs import GRADIENT_OF_LAST, WEIGHTS_OF_LAST, write_watched

PROBLEMS = {"p0": {"grid.nx": 64}, "p1": {"grid.nx": 128}}
DATA = {"p0": "uniform", "p1": "normal"}
SIZES = (100, 1000, 10_000)


def sums(out, problem, problem_options):
    of = {"problem": problem, "config": {"problem": {"distribution": DATA[problem[-2:]], "dtype": "float64"}}}
    rng = np.random.default_rng(3)
    values = {f"sum:spa:native:{n}": 1 + rng.integers(-3, 4, (2, 40)) * 2.0**-52 for n in SIZES}
    values |= {f"sum:sptr:native:{n}": np.ones((2, 40)) for n in SIZES}
    times = {name: np.linspace(1, 2, 40) for name in values}
    worst = {f"worst-low:spa:native:{SIZES[0]}": np.ones(2) - 2.0**-50,
             f"worst-high:spa:native:{SIZES[0]}": np.ones(2) + 2.0**-49}  # fmt: skip
    for size in (1, 2):
        write_sums(out / f"on-{size}", values, times, size, {n: np.ones(2) for n in SIZES}, worst, **of)


def decisions(out, **of):
    for size in (1, 2):
        for seed in (0, 1):
            write_run(out / f"on-{size}-{seed}", size, steps=3, decisions=partial(classes, seed), **of)


def solves(out, **of):
    for size in (1, 2):
        write_solves(out / f"on-{size}", [solve(FALLING), solve(FALLING[:-1])], size, **of)
    write_solves(out / "drift", [studied(limit=40)], guarantee="exact", ordering="exact", **of)


def growth(out, **of):
    for seed in range(4):
        for ordering in ("arrival", "ring"):
            write_run(out / f"{ordering}-{seed}", 1, ordering=ordering, steps=9, change=drifting(seed), **of)


def scaling(out, **of):
    for size in (1, 2, 3, 4):
        for guarantee in ("none", "run"):
            write_timed(out / f"{guarantee}-{size}", scaled(size, 64), size, guarantee, **of)


def learning(out, problem, problem_options):
    for seed in (1, 2, 3):
        for wire in ("as is", "fp8"):
            write_training(
                out / f"{wire[0]}{seed}", [0.3, 0.5 + seed / 100 + (wire == "fp8") / 50], seed, wire,
                problem=problem_options, values=[(20, "weights_sample", 0, float(seed))],
                choices=[(step, "wire", -1, wire, float(step)) for step in (0, 5, 10, 15)],
            )  # fmt: skip


def answers(out, **of):
    for backend in ("eager", "static"):
        write_answers(out / backend, [1, 2], [1.0, 2.0], backend, **of)


def audits(out, problem, problem_options):
    write_audit(
        out, [case("take", "backward", runs=3 if problem == "p0" else 1, threads=1), case("dot", address=2)]
    )


def nodes(out, **of):
    write_over_nodes(out / "a", ["n1", "n2"], **of)
    write_over_nodes(out / "b", ["n1", "n2", "n3"], "library", **of)


def utilisation(out, **of):
    for size in (1, 2):
        write_mesh(out / f"on-{size}", [0.4, 0.5], size=size, plan=PLAN if size > 1 else None, **of)


def watched(out, problem, problem_options):
    for seed in (0, 1, 2):
        apart = {(2, GRADIENT_OF_LAST): seed, (3, WEIGHTS_OF_LAST): seed}
        write_watched(out / f"run-{seed}", apart, problem=problem, problem_options=problem_options)


# Two ways to compute a problem, in the runs of each study.
WRITERS = {
    "answers": answers, "audits": audits, "components": growth, "decisions": decisions, "growth": growth,
    "learning": learning, "nodes": nodes, "scaling": scaling, "solves": solves, "sums": sums,
    "utilisation": utilisation, "watched": watched,
}  # fmt: skip


@pytest.fixture(scope="module", params=studies.names())
def known(request, tmp_path_factory):
    """(the study, what it knows of the runs of two problems, all runs)"""
    root = tmp_path_factory.mktemp(request.param)
    for problem, options in PROBLEMS.items():
        WRITERS[request.param](root / problem, problem=problem, problem_options=options)
    overview = Overview(load([root]))
    study = studies.study(request.param)
    return study, study.read(overview, None), overview


def test_tables_for_programs_have_the_columns_that_are_declared(known):
    study, of, _ = known
    for data in study.data:
        rows = data.frame(of)
        declared = {name: column.dtype for name, column in data.columns.items()}
        lists = {name: "object" for name, dtype in declared.items() if dtype.startswith("list of ")}
        assert {name: str(rows[name].dtype) for name in rows} == declared | lists
    assert any(len(data.frame(of)) > 1 for data in study.data)


def test_every_section_has_an_id_of_its_own_and_draws_what_its_figures_name(known):
    study, of, overview = known
    sections = [in_words(section, overview.words) for section in study.sections(of)]
    names = [figure.name for section in sections for figure in section.figures]
    ids = [section.id for section in sections]
    assert len(set(ids)) == len(ids) and len(set(names)) == len(names)
    for figure in (figure for section in sections for figure in section.figures):
        assert figure.data is not None and len(figure.data) and figure.caption.endswith(".")
    tables = [*study.tables(of), *(each for section in sections for each in section.tables)]
    titles = [title for title, _ in study.tables(of)]
    assert len(set(titles)) == len(titles) and tables
    for title, table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows), title
        shown = " ".join(str(cell) for row in table.rows for cell in row)
        assert not re.search(r"\b(nan|None)\b", f"{title} {shown}"), (title, shown)


# What tells the two problems apart, by study; certificates and placements are told by their runs.
TOLD = {"sums": ("uniform", "normal"), "solves": ("problem p0", "problem p1"), "audits": ("p0", "p1"),
        "nodes": ("p0", "p1"), "watched": ("p0", "p1")}  # fmt: skip


def test_both_problems_are_told(known, request):
    study, of, _ = known
    name = request.node.callspec.params["known"]
    texts = [*study.sentences(of), *(f"{title} {table.rows}" for title, table in study.tables(of))]
    assert [text for text in TOLD.get(name, ("64", "128")) if text not in " ".join(texts)] == []


@pytest.mark.slow
def test_the_report_has_them_all_at_once(tmp_path):
    for name, write in WRITERS.items():
        for problem, options in PROBLEMS.items():
            write(tmp_path / name / problem, problem=f"{name}-{problem}", problem_options=options)
    report = build(load([tmp_path]))
    made = set(re.findall(r'<section[^>]* id="([^"]+)"', report.html))
    assert {name.partition("-")[0] for name in made} >= set(studies.names())
    names = [figure.name for figure in report.figures]
    assert len(set(names)) == len(names)
