"""Traces of schema 3, which the version before this one wrote: `fixtures/schema3.tar.xz` holds a run of `solver` by it,
with `--guarantee layout` on two ranks, of a made-up environment."""

import tarfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from analysis.groups import CHOSEN, FREE, factors, grouped
from analysis.load.frames import load
from analysis.load.timeline import partners, timeline
from analysis.scaling.communication import collectives
from analysis.scaling.waits import waits
from miniapps.received import contents
from miniapps.trace import Tracer, read, read_all
from miniapps.trace.commits import Commit, attributes_digest, table_digest
from miniapps.trace.head import orderings
from miniapps.trace.older import adapt, options
from miniapps.trace.reader import RankTrace
from miniapps.trace.schema import NOT_IN_3, TABLES, growing
from tests.tampering import reseal


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("schema3")
    with tarfile.open(Path(__file__).parent / "fixtures" / "schema3.tar.xz") as archive:
        archive.extractall(place, filter="data")
    return place / "schema3-run"


def test_it_states_what_newer_ones_do(run):
    first, second = read_all(run / "node-00000.h5")
    for trace in (first, second):
        attributes, events = trace.attributes, trace.tables["events"]
        assert attributes["schema"] == 3 and "orderings" not in attributes["method"]
        assert not events["flops"].any() and len(events["flops"]) == len(events["name"]) > 0
        kinds = [attributes["regions"][name] for name in ("allreduce.dots1", "halo", "iteration", "spmv")]
        assert kinds == ["collective", "wait", "other", "compute"]
        assert attributes["options"]["solve.spmv"]["effect"] == "guarantee"
        assert (
            attributes["reductions"]["dots1"].items()
            >= {"ordering": "direct", "accumulation": "exact"}.items()
        )


def test_it_is_labelled_by_what_ran_and_its_waits_are_found(run):
    frames = load([run], keep=False)
    assert grouped(frames.runs)["group"].tolist() == ["solver layout/direct in exact"]
    assert "fixed-point" in read_all(run / "node-00000.h5")[0].attributes["ordering"]  # as it was guessed
    own = frames.runs.iloc[0]
    assert set(factors(own["method"], own["options"], (*CHOSEN, *FREE))) >= {"device", "preconditioner"}
    assert frames.usage.empty and not frames.events.empty
    table = collectives(waits(timeline(run, 0), 2, partners(run)))
    assert {"halo", "allreduce.dots1"} <= set(table["name"])


def test_the_file_of_a_rank_has_no_more_tables_and_columns_than_it_had(tmp_path):
    path = tmp_path / "rank-00000.h5"
    with Tracer(path, {"rank": 0, "app": "test"}) as tracer:
        tracer.event(tracer.name("region"), tracer.clock(), 8, 9)
        tracer.value("energy", 1.5)
        tracer.usage("cpu_time", 0, 0.25)
    known = growing(3)
    with h5py.File(path, "r+") as file:
        file.attrs["schema"] = 3
        for place in (file, file["tail"]):
            for table in NOT_IN_3:
                del place[table]
            del place["events/flops"]
        rows = {table: {column: file[table][column][...] for column in known[table]} for table in known}
        lengths = {table: len(next(iter(columns.values()))) for table, columns in rows.items()}
        digests = {table: table_digest(table, columns, 3) for table, columns in rows.items()}
        attribute_digests = (attributes_digest(contents.attributes(file.id, "test")),) * 2
        del file["committed"]
        file["committed"] = Commit(lengths, dict.fromkeys(known, 0), digests, attribute_digests).record()
    reseal(path)
    trace = read(path)
    assert trace.complete and trace.tables["values"]["value"].tolist() == [1.5]
    assert trace.tables["events"]["bytes"].tolist() == [8] and trace.tables["events"]["flops"].tolist() == [0]
    for table, columns in TABLES.items():
        assert {key: rows.dtype for key, rows in trace.tables[table].items()} == columns
    assert [len(trace.tables[table]["name"]) for table in NOT_IN_3] == [0] * len(NOT_IN_3)


def old(names, ordering, **method):
    """A trace of schema 3 as it comes out of the file."""
    attributes = {"guarantee": "layout", "ordering": ordering, "method": method, "schema": 3}
    trace = RankTrace(Path("x"), attributes, names, {"events": {"name": np.zeros(2, np.int32)}})
    adapt(trace)
    return trace.attributes["reductions"]


def test_what_was_a_vector_had_the_ordering_for_vectors():
    both = {"orderings": {"scalars": "exact", "vectors": "fixed-point"}}
    names = [
        "allreduce.scalars",
        "allreduce.gradients",
        "allreduce.dots17",
        "allreduce.dots16",
        "allreduce.dt",
        "x",
    ]
    entries = old(names, "exact,fixed-point", **both)
    assert {name: own["accumulation"] for name, own in entries.items()} == {
        "scalars": "exact", "gradients": "fixed-point", "dots17": "fixed-point", "dots16": "exact"
    }  # fmt: skip
    assert orderings(entries) == ["direct in exact", "direct in fixed-point"]
    study = old(["allreduce.dots1", "allreduce.exact1"], "arrival", **{"run.allreduce": "arrival"})
    assert orderings(study) == ["arrival"] and study["exact1"]["decided"] == "application"
    unnamed = old([], "exact,fixed-point", **both)  # nothing else is known
    assert orderings(unnamed) == ["direct in exact", "direct in fixed-point"]


def test_an_option_that_the_guarantee_decided_on_has_what_it_came_to():
    for guarantee, batch in (("none", "rank"), ("run", "rank"), ("layout", "block"), ("exact", "block")):
        attributes = {"guarantee": guarantee, "method": {"closure.batch": "auto"}, "schema": 3}
        adapt(RankTrace(Path("x"), attributes, [], {}))
        assert attributes["method"] == {"closure.batch": batch}


def test_its_options_say_what_todays_applications_state():
    from miniapps.coupled import APP as coupled
    from miniapps.reductions import APP as reductions
    from miniapps.runner import commandline, config
    from miniapps.runner.options import Common
    from miniapps.solver import APP as solver

    for app in (coupled, reductions, solver):
        known = commandline.known_options(app)
        values = config.effective(Common(), app.config())
        method = config.of_role(known, values, "method")
        stated = config.stated(known)
        if "output.restart" in stated:  # `cg_iterations` was a running total, which a restart began anew
            stated["output.restart"] |= {"records": ["values:cg_iterations"]}
        for newer in (
            "time.until",
            "solve.until",
            "run.fingerprint",
            "run.links",
            "flow.ensemble",
            "output.shares",
            "run.duplicate",
            "run.ledger",
            "run.fingerprint",
            "output.checkpoint_bits",
            "output.rounded_every",
            "solve.until",
        ):
            stated.pop(newer, None)
        assert options(method, values) == stated, app.name
