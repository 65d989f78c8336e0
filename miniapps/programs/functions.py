"""The MPI functions that `fpna run` records, counts or ignores.

It records or follows the functions that preload/calls.cpp defines. Of all other functions in the library's mpi.h, those
in `IGNORED` carry no data between ranks, or none that could differ between two runs. It counts calls of the rest, and
the trace has their numbers (`unseen`).
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

# Functions that carry data and are not recorded, by kind. Large-count forms (_c) count as these.
COUNTED = {
    "partitioned": ("MPI_Precv_init", "MPI_Psend_init"),
    "collectives": ("MPI_Alltoallw", "MPI_Alltoallw_init", "MPI_Ialltoallw"),
    "sessions": ("MPI_Comm_create_from_group", "MPI_Intercomm_create_from_groups", "MPI_Session_init"),
    "connections": ("MPI_Comm_join",),
}  # fmt: skip

# Counted like a function: mpi4py's reduce, allreduce, scan and exscan of Python objects, which are messages to MPI.
PYTHON = "mpi4py's reductions of Python objects"
# Recorded, and counted under a guarantee, which does not reach them.
ACCUMULATES = "accumulates of floating-point numbers"

# Patterns of ignored functions, by the reason.
IGNORED = {
    "affects only the library of this process": (
        "MPI_Abi_*", "MPI_Get_address", "MPI_Address", "MPI_Aint_*", "MPI_Get_hw_resource_info",
        "MPI_Get_library_version", "MPI_Get_processor_name", "MPI_Get_version", "MPI_Initialized", "MPI_Finalized",
        "MPI_Is_thread_main", "MPI_Query_thread", "MPI_T_*", "MPI_Info_*", "MPI_Wtick", "MPI_Wtime",
        "MPI_Dims_create",
    ),
    "errors": (
        "MPI_Abort", "MPI_Add_error_*", "MPI_Remove_error_*", "MPI_Error_*", "MPI_Errhandler_*", "MPI_*_errhandler",
    ),
    "converts handles between languages": ("MPI_*_c2f", "MPI_*_f2c", "MPI_*_toint", "MPI_*_fromint",
                                             "MPI_Status_?2f08", "MPI_Status_f082?"),
    "attributes, names and hints": (
        "MPI_Attr_*", "MPI_*_attr", "MPI_Keyval_*", "MPI_*_keyval", "MPI_*_get_name", "MPI_*_set_name",
        "MPI_*_get_info", "MPI_*_set_info",
    ),
    "types: records of calls contain them": ("MPI_Type_*",),
    "operations: records of reductions contain them": ("MPI_Op_free", "MPI_Op_commutative"),
    "groups and properties of communicators": (
        "MPI_Group_*", "MPI_Comm_group", "MPI_Comm_compare", "MPI_Comm_rank", "MPI_Comm_size", "MPI_Comm_remote_*",
        "MPI_Comm_test_inter", "MPI_Comm_get_parent", "MPI_Topo_test", "MPI_Cart_coords", "MPI_Cart_get",
        "MPI_Cart_map", "MPI_Cart_rank", "MPI_Cart_shift", "MPI_Cartdim_get", "MPI_Graph_get", "MPI_Graph_map",
        "MPI_Graph_neighbors*", "MPI_Graphdims_get", "MPI_Dist_graph_neighbors*",
    ),
    "memory": (
        "MPI_Alloc_mem", "MPI_Free_mem", "MPI_Buffer_*", "MPI_Comm_attach_buffer", "MPI_Comm_detach_buffer",
        "MPI_Comm_flush_buffer", "MPI_Comm_iflush_buffer", "MPI_Session_attach_buffer", "MPI_Session_detach_buffer",
        "MPI_Session_flush_buffer", "MPI_Session_iflush_buffer",
    ),
    "computes in this process": ("MPI_Pack*", "MPI_Unpack*", "MPI_Reduce_local"),
    "asks about a call whose begin and end are recorded": (
        "MPI_Test_cancelled", "MPI_Get_count", "MPI_Get_elements*", "MPI_Request_get_status_*",
        "MPI_Status_set_*", "MPI_Status_get_*", "MPI_Grequest_*",
    ),
    "parts of a partitioned call, which is counted": ("MPI_Parrived", "MPI_Pready*"),
    "windows: the calls that move data, and those that end their exposure, are recorded": (
        "MPI_Win_attach", "MPI_Win_detach", "MPI_Win_get_group", "MPI_Win_lock", "MPI_Win_lock_all", "MPI_Win_post",
        "MPI_Win_shared_query", "MPI_Win_start", "MPI_Win_sync",
    ),
    "files: the calls that move data are recorded": (
        "MPI_File_delete", "MPI_File_get_*", "MPI_File_set_atomicity", "MPI_File_set_size", "MPI_File_seek*",
        "MPI_File_sync", "MPI_File_preallocate", "MPI_Register_datarep",
    ),
    "sessions: their begin is counted": ("MPI_Session_finalize", "MPI_Session_get_n*", "MPI_Session_get_pset_info"),
    "names of ports": ("MPI_Open_port", "MPI_Close_port", "MPI_Lookup_name", "MPI_Publish_name", "MPI_Unpublish_name"),
}  # fmt: skip

DECLARED = re.compile(r"\b(?:int|double|MPI_\w+)\s+(MPI_[A-Z][A-Za-z0-9_]*)\s*\(")
LARGE = "_c"  # ends the name of a function with large counts


def declared(header: str) -> list[str]:
    """The functions that a preprocessed mpi.h declares."""
    return sorted(set(DECLARED.findall(header)))


def plain(name: str) -> str:
    """The name without the ending of a large-count form."""
    return name.removesuffix(LARGE)


def ignored(name: str) -> str:
    """The reason why calls of this function are ignored; empty if they are not."""
    reasons = (why for why, names in IGNORED.items() if any(fnmatchcase(plain(name), own) for own in names))
    return next(reasons, "")


def counted_names(names: list[str]) -> list[str]:
    """The functions of `names` that are counted unless the library to preload defines them, in the order of the
    counters: first those in `COUNTED`, then unknown ones."""
    known = [name for group in COUNTED.values() for name in group]
    others = {plain(name) for name in names if not ignored(name)} - set(known)
    return [PYTHON, ACCUMULATES, *known, *sorted(others)]
