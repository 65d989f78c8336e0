"""Malicious runs: their faults are named, they are left out, and other runs are used."""

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from miniapps.trace import TraceError, read
from tests.analysis.synthetic import write_run
from tests.tampering import altered

SECRET = "do not read this"


def replaced(name, **how):
    """A change that puts another dataset in the place of `name`."""

    def change(file):
        del file[name]
        file.create_dataset(name, **how)

    return change


def changed(name, change):
    """A change of the rows of the dataset `name`."""

    def put(file):
        rows = file[name][...]
        del file[name]
        file[name] = change(rows)

    return put


def linked(name, link):
    def change(file):
        del file[name]
        file[name] = link

    return change


def virtual(file):
    layout = h5py.VirtualLayout(shape=(10,), dtype="<f8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", shape=(10,))
    del file["values/value"]
    file.create_virtual_dataset("values/value", layout)


def circle(file):
    del file["tail"]
    file["tail"] = file["/"]


def attribute(name, value):
    def change(file):
        file.attrs[name] = value

    return change


ZEROS = {"chunks": (2**20,), "compression": "gzip"}
HOSTILE = {
    "external storage": (
        replaced("events/start", shape=(10,), dtype="<i8", external=[("/etc/passwd", 0, 80)]), "in another file"
    ),
    "an external link": (linked("events/start", h5py.ExternalLink("/etc/passwd", "/x")), "is a link"),
    "an external link for a table": (linked("events", h5py.ExternalLink("/etc/passwd", "/x")), "is a link"),
    "a soft link": (linked("values/value", h5py.SoftLink("/events/start")), "is a link"),
    "a virtual dataset": (virtual, "in another file"),
    "a circle": (circle, "members"),
    "another filter": (replaced("events/start", shape=(10,), dtype="<i8", chunks=(5,), fletcher32=True), "filter"),
    "a huge shape": (replaced("values/value", shape=(10**13,), dtype="<f8"), "80,000,000,000,000 bytes"),
    "many zeros": (
        replaced("values/value", shape=(2**22,), maxshape=(None,), dtype="<f8", **ZEROS), "bytes, and all arrays"
    ),
    "another dtype": (changed("values/value", lambda rows: rows.astype("<f4")), "is float32"),
    "big-endian": (changed("values/step", lambda rows: rows.astype(">i4")), "is >i4"),
    "text": (changed("values/value", lambda rows: ["a"] * len(rows)), "plain numbers"),
    "a record": (changed("values/value", lambda rows: rows.view([("a", "<f8")])), "plain numbers"),
    "two axes": (changed("values/value", lambda rows: np.stack([rows, rows], 1)), "2 axes"),
    "no axis": (replaced("values/value", data=np.float64(1)), "0 axes"),
    "columns of other lengths": (changed("values/value", lambda rows: rows[:-1]), "committed rows"),
    "a missing column": (lambda file: file["values"].__delitem__("value"), "members"),
    "a missing table": (lambda file: file.__delitem__("values"), "members"),
    "another table": (lambda file: file.create_group("more"), "members"),
    "a table that is a dataset": (replaced("order", data=[1]), "damaged"),
    "names out of range": (changed("values/name", lambda rows: rows + 1000), "values/name has numbers"),
    "a negative step": (changed("values/step", lambda rows: rows - 5), "values/step has numbers"),
    "names that are no JSON": (replaced("names/text", data=np.frombuffer(b"hello\n", "u1")), "damaged"),
    "names that are no text": (replaced("names/text", data=np.frombuffer(b"3\n" * 50, "u1")), "not text"),
    "a rank beyond the size": (attribute("rank", 7), "rank 7 of 2 ranks"),
    "endless ranks": (attribute("size", 10**9), "size"),
    "no ranks": (attribute("size", 0), "size"),
    "a size of text": (attribute("size", "two"), "size"),
    "a size of many": (attribute("size", [2, 2]), "size"),
    "complete of text": (attribute("complete", "yes"), "complete"),
    "an unknown guarantee": (attribute("guarantee", "perfect"), "guarantee"),
    "a config that is no JSON": (attribute("config", "{"), "config"),
    "a config that is a list": (attribute("config", "[]"), "config"),
    "a deep config": (attribute("config", "[" * 100_000 + "]" * 100_000), "deep"),
    "a number of many digits": (attribute("config", '{"run": {"seed": ' + "9" * 5000 + "}}"), "config"),
    "an attribute of records": (attribute("config", np.zeros(3, [("a", "<f8")])), "type"),
    "an attribute of references": (
        lambda file: file.attrs.create("app", file["events"].ref, dtype=h5py.ref_dtype), "type"
    ),
    "a region of no kind": (attribute("regions", '{"step": "speed"}'), "speed"),
    "an option of no effect": (attribute("options", '{"run.seed": {"effect": "magic"}}'), "magic"),
    "an option that decides on no table": (attribute("options", '{"a.b": {"records": ["events:*"]}}'), "records"),
    "a reduction by no ordering": (attribute("reductions", '{"total": {"calls": 1}}'), "ordering"),
    "a reduction of endless axes": (
        attribute("reductions", f'{{"total": {{"ordering": "ring", "shape": {[9] * 99}}}}}'), "shape"
    ),
    "unseen calls that are no number": (attribute("unseen", '{"MPI_Put": "many"}'), "unseen"),
    "sums that are not reached below zero": (
        attribute("unreached", '[{"call": "MPI_Allreduce", "why": "", "calls": -1}]'), "unreached"
    ),
    "many attributes": (lambda file: [file.attrs.create(f"a{i}", i) for i in range(300)], "attributes"),
    "an empty attribute": (attribute("seed", h5py.Empty("<i8")), "damaged"),
    "another schema": (attribute("schema", 1), "schema 1"),
    "another format": (attribute("format", "fpna-something"), "not a trace"),
}  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace, of which copies are changed."""
    return write_run(tmp_path_factory.mktemp("short") / "r", steps=1) / "rank-00001.h5"


@pytest.mark.parametrize("closed", [True, False], ids=["sealed", "open"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_crafted_trace_is_refused_by_name_and_the_rest_is_used(tmp_path, trace, kind, closed):
    change, words = HOSTILE[kind]
    path = altered(Path(shutil.copy(trace, tmp_path)), change, closed)
    with pytest.raises(TraceError) as error:
        read(path)
    assert str(path) in str(error.value) and words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_crafted_trace_costs_only_its_own_run(tmp_path):
    write_run(tmp_path / "good")
    altered(write_run(tmp_path / "bad") / "rank-00000.h5", HOSTILE["a huge shape"][0])
    frames = load([tmp_path])
    assert frames.runs.query("complete")["run"].tolist() == ["good"]


def fifo(run):
    (run / "rank-00001.h5").unlink()
    os.mkfifo(run / "rank-00001.h5")


def device(run):
    (run / "rank-00001.h5").unlink()
    (run / "rank-00001.h5").symlink_to("/dev/zero")


def sparse(run):
    with open(run / "rank-00001.h5", "r+b") as file:
        file.truncate(40 * 10**9)


def holes(run):
    with open(run / "rank-00001.h5", "r+b") as file:
        file.truncate(7 * 10**9)


def directory(run):
    (run / "rank-00001.h5").unlink()
    (run / "rank-00001.h5").mkdir()


def outside(run):
    elsewhere = run.parent / "elsewhere.h5"
    shutil.move(run / "rank-00001.h5", elsewhere)
    (run / "rank-00001.h5").symlink_to(elsewhere)


def many(run):
    (run / "rank-99999999999.h5").write_bytes(b"")


KINDS = {"is a fifo": fifo, "is a symbolic link": device, "bytes, and at most": sparse, "of them holes": holes,
         "is a directory": directory, "is a symbolic link ": outside}  # fmt: skip


@pytest.mark.parametrize("words", KINDS)
def test_what_is_no_file_of_ours_is_not_opened(tmp_path, words):
    run = write_run(tmp_path / "bad")
    KINDS[words](run)
    write_run(tmp_path / "good")
    frames = load([tmp_path / "bad", tmp_path / "good"])
    reasons = frames.excluded[frames.excluded["what"] == "unreadable"]["reason"].tolist()
    assert len(reasons) == 1 and "rank-00001.h5" in reasons[0] and words.strip() in reasons[0]
    assert frames.runs.query("complete")["run"].tolist() == ["good"]


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "40 GB", "deep", "digits", "another"])
def test_a_result_that_is_none_costs_only_itself(tmp_path, kind):
    run = write_run(tmp_path / "r")
    result = run / "result.json"
    text = result.read_text()
    result.unlink()
    if kind == "fifo":
        os.mkfifo(result)
    elif kind == "link":
        (tmp_path / "other.json").write_text(text)
        result.symlink_to(tmp_path / "other.json")
    elif kind == "directory":
        result.mkdir()
    elif kind == "40 GB":
        result.write_text(text)
        os.truncate(result, 40 * 10**9)
    elif kind == "deep":
        result.write_text('{"status": ' + "[" * 100_000 + "]" * 100_000 + "}")
    elif kind == "digits":
        result.write_text('{"exit_code": ' + "9" * 5000 + "}")
    else:
        result.write_text(text.replace('"done"', '"fine"'))
    frames = load([run])
    (reason,) = frames.excluded[frames.excluded["what"] == "damaged result"]["reason"]
    assert str(result) in reason
    assert frames.runs["complete"].tolist() == [True] and frames.runs["state"].tolist() == [""]


def test_directories_that_lead_into_themselves_or_have_no_name_in_text_cost_nothing(tmp_path):
    write_run(tmp_path / "good")
    (tmp_path / "self").symlink_to(tmp_path)
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    write_run(outside)
    (tmp_path / "out").symlink_to(outside)
    odd = os.fsencode(tmp_path) + b"/odd-\xff\x1b[31m"
    shutil.copytree(os.fsencode(write_run(tmp_path / "x", run_id="another")), odd)
    shutil.rmtree(tmp_path / "x")
    frames = load([tmp_path])
    assert sorted(frames.runs["run"]) == ["good", "odd-\\xff\\x1b[31m"]
    assert frames.runs["complete"].all() and len(frames.fingerprints)
    assert main(["show", str(tmp_path)]) == 0
