"""Files of results: named after machine and day, and never written over."""

import json

from benchmarks.harness.results import save

WHERE = {
    "cores": 2,
    "cpu": "Intel(R) Xeon(R) Processor (family 6, model 207)",
    "date": "2026-11-27T01:02:03+00:00",
}


def test_a_result_has_its_machine_in_its_name_and_a_second_one_stands_beside_it(tmp_path):
    content = {"title": "any processor", "machine": WHERE, "rows": [{"a": 1}]}
    name = "any-processor-2-cores-intel-xeon-processor-family-6-model-207-2026-11-27"
    paths = [save(content | {"round": k}, tmp_path) for k in range(3)]
    assert [path.name for path in paths] == [f"{name}.json", f"{name}-2.json", f"{name}-3.json"]
    assert [json.loads(path.read_text())["round"] for path in paths] == [0, 1, 2]
    assert save(content | {"round": 7}, paths[1]).name == f"{name}-2-2.json"


def test_more_rows_of_the_same_measurement_take_the_place_of_fewer(tmp_path):
    path = tmp_path / "own.json"
    for rows in ([{"a": 1}], [{"a": 1}, {"a": 2, "raw": [3]}]):
        assert save({"title": "own", "machine": WHERE, "rows": rows}, path, again=True) == path
    assert json.loads(path.read_text())["rows"] == [{"a": 1}, {"a": 2}]
    assert json.loads((tmp_path / "own.raw.json").read_text())["rows"][1]["raw"] == [3]
