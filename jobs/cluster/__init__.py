"""Makes several nodes on one machine: network namespaces with links of a chosen rate, across which MPI programs run.

    with cluster(nodes=2, link="1gbit") as nodes:
        ended = nodes.run([sys.executable, "-m", "miniapps.coupled"], ranks=4, ranks_per_node=2)

docs/how-to/cluster.md lists its uses and its limits.
"""

from jobs.cluster.errors import ClusterError as ClusterError
from jobs.cluster.nodes import Cluster as Cluster
from jobs.cluster.nodes import cluster as cluster
