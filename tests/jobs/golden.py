"""The scripts that the tests compare with: one job on every site. `python -m tests.jobs.golden` writes them anew;
read the difference before it is committed: it is what users will submit."""

from pathlib import Path

from jobs.job import Job
from jobs.render import render
from jobs.sites import site

FOLDER = Path(__file__).parent / "golden"
# (nodes, ranks per node, cores per rank, GPUs per node): full nodes, as the machines are used.
SHAPES = {
    "abci3": (2, 8, 12, 8),
    "frontier": (2, 8, 7, 8),
    "fugaku": (48, 4, 12, 0),
    "generic-slurm": (4, 8, 2, 0),
    "jupiter": (2, 4, 72, 4),
    "juwels-booster": (2, 4, 12, 4),
    "local": (1, 2, 1, 0),
    "lumi-g": (2, 8, 7, 8),
    "miyabi-g": (4, 1, 72, 1),
    "perlmutter": (2, 4, 16, 4),
    "perlmutter-cpu": (2, 32, 4, 0),
    "tsubame4": (4, 4, 48, 4),
}


def job(name: str, **changes) -> Job:
    """The job that the golden script of site `name` is about."""
    nodes, ranks_per_node, threads, gpus_per_node = SHAPES[name]
    gpus_per_node = changes.get("gpus_per_node", gpus_per_node)
    launch = " ".join(site(name).command(nodes * ranks_per_node, ranks_per_node, threads, gpus_per_node))
    values = {
        "name": "weak",
        "nodes": nodes,
        "ranks_per_node": ranks_per_node,
        "threads": threads,
        "seconds": 5400,
        "account": "lab_g",
        "queue": None,
        "environment": "/proj/lab/environment",
        "commands": (f'{launch} \\\n    python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"',),
        "array": 3,
        "output": "logs",
        "gpus_per_node": gpus_per_node,
    }
    return Job(**values | changes)


def main() -> None:
    for name in SHAPES:
        (FOLDER / f"{name}.sh").write_text(render(job(name), site(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
