"""Variables by which a user forces an algorithm of the MPI library, and the ordering that each implies.

Only the environment of a rank is read: MPICH's variables, and Open MPI's parameters that come from `--mca` or the
environment, but not those from files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

MPICH_PREFIXES = ("MPIR_CVAR_", "MPIR_PARAM_", "MPICH_")
OPENMPI_PREFIX = "OMPI_MCA_"
TREES = {"kary": "heap", "knomial_1": "depth", "knomial_2": "far"}  # MPICH's names, and ours for k-nomial
RULES = "coll_tuned_use_dynamic_rules"

Value = Callable[[str], str | None]  # of the variable with that name, without prefix


@dataclass(frozen=True)
class Forced:
    """`variable` has `value`, for which the library should run `ordering`; None if the value does not determine it.

    `remark` says why not, or that the library ignores it.
    """

    variable: str
    value: str
    ordering: str | None
    remark: str = ""


def forced(library: str, call: str, environment: Mapping[str, str]) -> list[Forced]:
    """The environment's forced algorithms of a library, `MPICH` or `Open MPI`, for `blocking`, `nonblocking` or
    `persistent` calls. In both libraries the last two have the same variables."""
    if library == "MPICH":
        return _mpich(call, environment)
    if library == "Open MPI":
        return _openmpi(call, environment)
    return []


def variables(library: str, call: str) -> str:
    """The name of the variable that chooses the algorithm, for messages; empty for an unknown library."""
    return {
        ("MPICH", True): "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM",
        ("MPICH", False): "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM",
        ("Open MPI", True): "coll_tuned_allreduce_algorithm",
        ("Open MPI", False): "coll_libnbc_iallreduce_algorithm",
    }.get((library, call == "blocking"), "")


def _mpich(call: str, environment: Mapping[str, str]) -> list[Forced]:
    operation = "ALLREDUCE" if call == "blocking" else "IALLREDUCE"

    def find(name: str) -> tuple[str, str] | None:
        given = (prefix + name for prefix in MPICH_PREFIXES)
        return next(((full, environment[full]) for full in given if full in environment), None)

    def value(name: str, default: str) -> str:
        variable = find(f"{operation}_{name}")
        return variable[1] if variable else default

    variable = find(f"{operation}_INTRA_ALGORITHM")
    if not variable:
        return []
    radix = value("RECEXCH_KVAL", "2")
    multiply = value("RECURSIVE_MULTIPLYING_KVAL", "2")
    tree = TREES.get(value("TREE_TYPE", "kary" if operation == "IALLREDUCE" else "knomial_1"))
    k_nomial = f"k-nomial:k={value('TREE_KVAL', '2')},tree={tree}" if tree else None
    exchange = f"recursive-multiplying:k={radix},fold=neighbours"
    known = {
        "ALLREDUCE": {
            "recursive_doubling": "recursive-doubling",
            "recursive_multiplying": f"recursive-multiplying:k={multiply}",
            "recexch": exchange,
            "reduce_scatter_allgather": "rabenseifner",
            "k_reduce_scatter_allgather": f"rabenseifner:k={radix}",
            "ring": "ring:start=1,cut=full",
            "tree": k_nomial,
        },
        "IALLREDUCE": {
            "sched_recursive_doubling": "recursive-doubling",
            "sched_reduce_scatter_allgather": "rabenseifner",
            # With more than two at a time each rank adds its own number last: an order of its own.
            "tsp_recexch_single_buffer": "recursive-doubling" if radix == "2" else None,
            "tsp_recexch_multiple_buffer": "recursive-doubling" if radix == "2" else None,
            "tsp_recexch_reduce_scatter_recexch_allgatherv": f"rabenseifner:k={radix}",
            "tsp_ring": "ring:start=1,cut=full",
            "tsp_tree": k_nomial,
        },
    }[operation]
    return [_entry(*variable, known)]


def _openmpi(call: str, environment: Mapping[str, str]) -> list[Forced]:
    known = {
        "coll_tuned_allreduce_algorithm": {
            "1": "reverse",
            "basic_linear": "reverse",
            "3": "recursive-doubling",
            "recursive_doubling": "recursive-doubling",
            "4": "ring",
            "ring": "ring",
            "5": "segmented-ring",
            "segmented_ring": "segmented-ring",
            "6": "rabenseifner",
            "rabenseifner": "rabenseifner",
        },
        "coll_libnbc_iallreduce_algorithm": {
            "1": "ring:start=-1",
            "ring": "ring:start=-1",
            "2": "binomial",
            "binomial": "binomial",
            "3": "rabenseifner",
            "rabenseifner": "rabenseifner",
            "4": "recursive-doubling",
            "recursive_doubling": "recursive-doubling",
        },
    }
    name = variables("Open MPI", call)
    variable = OPENMPI_PREFIX + name
    if variable not in environment:
        return []
    entry = _entry(variable, environment[variable], known[name])
    rules = environment.get(OPENMPI_PREFIX + RULES, "0").lower()
    if call == "blocking" and rules not in ("1", "true", "yes", "enabled"):
        return [Forced(variable, entry.value, None, f"ignored without {OPENMPI_PREFIX}{RULES}=1")]
    return [entry]


def _entry(variable: str, value: str, known: Mapping[str, str | None]) -> Forced:
    ordering = known.get(value)
    return Forced(variable, value, ordering, "" if ordering else "does not determine the order")
