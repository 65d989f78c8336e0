"""How many cores ranks have together: by running kernel and by what they are bound to."""

import pytest

from analysis.predict.reading.cores import cores_of


def rank(node, cores, **more):
    return {"node": node, "cores": cores, **more}


@pytest.mark.parametrize(
    ("environments", "cores"),
    [
        ([rank("a", 4), rank("a", 4), rank("b", 4)], 8),
        # Network namespaces and containers of one machine share its cores, unless each has some of them.
        ([rank(name, 2, boot="one", affinity="0-1") for name in "abcd"], 2),
        ([rank("a", 2, boot="one", affinity="0-1"), rank("b", 2, boot="one", affinity="2,3")], 4),
        ([rank("a", 2, boot="one", affinity="0-1"), rank("b", 2, boot="two", affinity="0-1")], 4),
        # Bound ranks of one node have all that they are bound to.
        ([rank("a", 1, affinity=str(core)) for core in range(3)], 3),
        ([rank("a", 2, affinity="all")], 2),
        ([rank("a", 2, affinity="0-99999999")], 2),
        ([rank("a", 2, affinity=",".join(["0-9999"] * 10**5))], 2),
        ([rank("a", 4), rank("b", None)], None),
        ([rank("a", 0)], None),
        ([{}], None),
        ([], None),
    ],
)
def test_cores_are_counted_once(environments, cores):
    assert cores_of(environments) == cores
