"""The section on the costs of guarantees: it has no number if the runs do not give one."""

import pytest

from analysis.load.frames import load
from analysis.overview import Overview
from analysis.report.times import costs_sections
from tests.analysis.synthetic import write_run


def section(root, runs, environment):
    for guarantee in ("none", "layout"):
        for i in range(runs):
            write_run(root / f"{guarantee}{i}", guarantee=guarantee, environment=environment)
    (found,) = costs_sections(Overview(load([root])))
    return " ".join(str(cell) for _, table in found.tables for row in table.rows for cell in row)


@pytest.mark.parametrize(
    ("runs", "cores", "why"),
    [(2, 8, "not shown: launch six times"), (6, 1, "not shown: ranks share cores"), (6, 8, None)],
)
def test_a_cost_is_shown_by_six_runs_on_cores_of_their_own(tmp_path, runs, cores, why):
    text = section(tmp_path, runs, {"cores": cores, "threads": 1, "node": "n1", "variables": {}})
    assert why in text if why else "not shown" not in text
