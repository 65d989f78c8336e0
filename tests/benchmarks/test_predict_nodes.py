"""Predictions over several nodes: what is launched in which order, and when the part runs."""

import json
from types import SimpleNamespace

import pytest

from benchmarks.predict import __main__ as command
from benchmarks.predict import nodes
from jobs.cluster.errors import ClusterError


class Launches:
    """A cluster that writes down what it is to run, and ends with `code`."""

    def __init__(self, code=0):
        self.code, self.words = code, []

    def run(self, words, ranks, ranks_per_node, **more):
        self.words.append((words[2], ranks, ranks_per_node, more["environment"]))
        more["stdout"].write("what it wrote")
        return SimpleNamespace(code=self.code)


def test_targets_run_after_they_were_predicted(tmp_path, monkeypatch):
    launches = Launches()
    target = {"ranks": 64, "clock": "wall", "median_s": 1.0, "measured_s": 2.0, "error": 1.0, "floor": 0.1,
              "bias": 1.0, "inside": 1, "runs": 2, "best": "prediction"}  # fmt: skip

    def start(words, ranks=0):
        launches.words.append((words[1], words[words.index("--ranks") + 1] if words[1] == "predict" else ""))
        return json.dumps({"tables": {"targets": [target]}})

    monkeypatch.setattr(nodes, "start", start)
    (row,) = nodes.of_link(launches, "1gbit", tmp_path / "link", ["source"], {"LD_PRELOAD": "sleep"})
    same = {"LD_PRELOAD": "sleep"}  # calibrations and targets wait alike
    assert launches.words == [
        ("miniapps.calibrate", 8, 2, same),
        ("predict", "8,16,64"),
        ("predict", "8,16,64"),
        *(("miniapps.training", 4 * each, each, same) for each in (2, 4, 16)),
        ("score", ""),
    ]
    assert (row["what"], row["inside"], row["best"]) == ("64 ranks on 4 nodes, 1gbit, wall", 0.5, 1)


def test_a_job_that_fails_is_told_with_what_it_wrote():
    with pytest.raises(ClusterError, match=r"training ended with 3:\nwhat it wrote"):
        nodes.job(Launches(3), ["miniapps.training"], 2, {})


def test_clusters_are_made_only_where_they_are_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(
        command, "run_parts", lambda title, parser, parts, argv: asked.append(parser.parse_args(argv))
    )
    command.main([])
    command.main(["nodes"])
    assert [options.parts for options in asked] == [
        [name for name in command.PARTS if name not in ("nodes", "plan-nodes")], ["nodes"],
    ]  # fmt: skip
