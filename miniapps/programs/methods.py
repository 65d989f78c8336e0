"""How a wrapped communicator handles each method of mpi4py's communicators.

Every public name of `Comm`, `Intracomm`, `Topocomm`, `Cartcomm`, `Graphcomm`, `Distgraphcomm`, `Intercomm` and of
`mpi4py.util.pkl5` is in one of these tables; a test checks the classes of the installed mpi4py.
"""

from __future__ import annotations

# Reductions that keep the guarantee.
OURS = (
    "Allreduce", "Iallreduce", "Reduce", "Ireduce", "Reduce_scatter_block", "Ireduce_scatter_block", "Reduce_scatter",
    "Ireduce_scatter", "allreduce", "reduce",
)  # fmt: skip

# Reductions without an ordering here: if they round, they raise ChoiceError under a guarantee.
REFUSED = (
    "Scan", "Exscan", "Iscan", "Iexscan", "scan", "exscan", "Allreduce_init", "Reduce_init", "Reduce_scatter_init",
    "Reduce_scatter_block_init", "Scan_init", "Exscan_init",
)  # fmt: skip

# Methods that make a communicator with the same guarantee; Idup, Idup_with_info and Ishrink also return a request.
WRAPPED = (
    "Dup", "Dup_with_info", "Clone", "Create", "Split", "Split_type", "Shrink", "Create_group", "Create_from_group",
    "Create_cart", "Create_graph", "Create_dist_graph_adjacent", "Create_dist_graph", "Sub", "Create_intercomm",
    "Merge", "Create_from_groups", "Spawn", "Spawn_multiple", "Accept", "Connect", "Join", "Get_parent", "Idup",
    "Idup_with_info", "Ishrink",
)  # fmt: skip

ENDING = ("Free", "free", "Disconnect", "Abort")

# Methods that return the handle, as the attribute `handle`; the wrapped communicator notes their caller.
TAKING = ("tohandle", "toint", "py2f")

# Unchanged methods, by the reason. No patterns, so that a test finds new names of a later mpi4py.
PASSED = {
    "moves data and adds nothing": (
        "Send", "Recv", "Sendrecv", "Sendrecv_replace", "Isend", "Irecv", "Isendrecv", "Isendrecv_replace", "Probe",
        "Iprobe", "Mprobe", "Improbe", "Send_init", "Recv_init", "Psend_init", "Precv_init", "Bsend", "Ssend", "Rsend",
        "Ibsend", "Issend", "Irsend", "Bsend_init", "Ssend_init", "Rsend_init", "send", "bsend", "ssend", "recv",
        "sendrecv", "isend", "ibsend", "issend", "irecv", "probe", "iprobe", "mprobe", "improbe",
        "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall",
        "Alltoallv", "Alltoallw", "Ibarrier", "Ibcast", "Igather", "Igatherv", "Iscatter", "Iscatterv", "Iallgather",
        "Iallgatherv", "Ialltoall", "Ialltoallv", "Ialltoallw", "Barrier_init", "Bcast_init", "Gather_init",
        "Gatherv_init", "Scatter_init", "Scatterv_init", "Allgather_init", "Allgatherv_init", "Alltoall_init",
        "Alltoallv_init", "Alltoallw_init", "barrier", "bcast", "gather", "scatter", "allgather", "alltoall",
        "Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_alltoallw",
        "Ineighbor_allgather", "Ineighbor_allgatherv", "Ineighbor_alltoall", "Ineighbor_alltoallv",
        "Ineighbor_alltoallw", "Neighbor_allgather_init", "Neighbor_allgatherv_init", "Neighbor_alltoall_init",
        "Neighbor_alltoallv_init", "Neighbor_alltoallw_init", "neighbor_allgather", "neighbor_alltoall",
    ),
    "reads or sets properties of the communicator": (
        "Get_group", "Get_size", "Get_rank", "Get_failed", "Get_info", "Get_topology", "Get_name", "Get_dim",
        "Get_dims",
        "Get_topo", "Get_cart_rank", "Get_coords", "Get_neighbors", "Get_neighbors_count", "Get_dist_neighbors",
        "Get_dist_neighbors_count", "Get_remote_group", "Get_remote_size", "Set_info", "Set_name", "Compare",
        "Is_inter", "Is_intra", "Is_revoked", "is_inter", "is_intra", "is_topo", "group", "size", "rank", "info",
        "topology", "name", "remote_group", "remote_size", "Cart_map", "Graph_map", "Shift", "degrees", "indegree",
        "outdegree", "inoutedges", "inedges", "outedges", "dim", "ndim", "dims", "topo", "periods", "coords", "index",
        "edges", "nnodes", "nedges", "nneighbors", "neighbors",
    ),
    "attributes and errors": (
        "Get_attr", "Set_attr", "Delete_attr", "Create_keyval", "Free_keyval", "Create_errhandler", "Get_errhandler",
        "Set_errhandler", "Call_errhandler",
    ),
    "buffers of sends": ("Attach_buffer", "Detach_buffer", "Flush_buffer", "Iflush_buffer"),
    "faults: flags and groups, which do not round": ("Revoke", "Ack_failed", "Agree", "Iagree"),
    "the handle itself: code that takes it calls the MPI library, which keeps no guarantee": (
        "handle", *TAKING, "fromhandle", "fromint", "f2py",
    ),
}  # fmt: skip
