"""Programs of plans by hand, and a machine of devices to price them."""

from miniapps.untrusted.program import Program, Ranks, Segment, Work, to_json

REST = 0, 0, 0, 0
PRODUCT, ELEMENTS = "kernel mm torch float32 float32 by 3", "kernel add torch float32 float32 by 1"


def product_of(n):
    return Work(PRODUCT, (n, n, n), 2 * n**3, 12 * n * n)


def elements(n):
    return Work(ELEMENTS, (n,), 0, 12 * n)


def program(works=(), calls=((),), waits=(), size=1, **more):
    """A program whose ranks all do the same: `calls` of each segment."""
    segments = tuple(Segment(tuple(each), REST) for each in calls)
    one = Ranks(tuple(range(size)), segments, tuple(waits), (10, 20, 30))
    given = {
        "title": "a step",
        "mesh": {"data": size},
        "guarantee": "none",
        "threads": 1,
        "model_flops": 1000,
    }
    return Program(**given | {"works": tuple(works), "classes": (one,)} | more)


DEVICE = {
    "device": {"product": 1e12, "achieved": 0.5, "memory": 1e9, "capacity": 1e9, "launch": 1e-6, "width": 2},
    "node": {"devices": 2, "latency": 1e-6, "bandwidth": 1e9},
    "latency": 1e-5,
    "bandwidth": 1e8,
    "sources": {"product": "a data sheet"},
}


def written(machine):
    """The text of a machine file with these tables."""
    tables = (
        f"[{table}]\n" + "\n".join(f"{k} = {v!r}" for k, v in machine[table].items())
        for table in ("device", "node")
    )
    return "name = 'one'\nlatency = 1e-5\nbandwidth = 1e8\n" + "\n".join(tables)


def write_plans(root):
    """Two plans, of which the second needs more memory than a device has, and the machine."""
    root.mkdir()
    (root / "machine.toml").write_text(written(DEVICE))
    good = program([elements(1000), product_of(32)], [((0, 2), (1, 1))], title="small")
    large = Ranks((0,), good.classes[0].segments, (), (10**9, 0, 1))
    for name, each in (("small", good), ("large", program(good.works, title="large", classes=(large,)))):
        (root / f"{name}.json").write_bytes(to_json(each))
