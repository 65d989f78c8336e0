"""Several nodes on one machine: network namespaces, links of a chosen rate, MPI libraries launched across them.

    with cluster(nodes=2, link="1gbit") as nodes:
        ended = nodes.run([sys.executable, "-m", "miniapps.coupled"], ranks=4, ranks_per_node=2)

See docs/how-to/cluster.md for what it is and what it is not.
"""

from jobs.cluster.errors import ClusterError as ClusterError
from jobs.cluster.nodes import Cluster as Cluster
from jobs.cluster.nodes import cluster as cluster
