// The same four numbers per element, all-reduced as a short and as a long vector: a library that changes its algorithm
// with the length gives other bits. Prints element 0 of each in hexadecimal. argv[1]: how long the long one is.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <mpi.h>

static double total(std::vector<double> values) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), int(values.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return values[0];
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int n = argc > 1 ? std::atoi(argv[1]) : 100000;
    const double own = 0.1 / (1 + rank) + (rank % 4 == 1 ? 1e9 : rank % 4 == 2 ? -1e9 : 0);
    const double brief = total(std::vector<double>(1, own)), extended = total(std::vector<double>(n, own));
    std::vector<float> narrow(3, float(own)), sums(3);
    MPI_Request request;
    MPI_Iallreduce(narrow.data(), sums.data(), 3, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    double before = 0;
    MPI_Scan(&own, &before, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    std::vector<double> shares(std::size_t(size), own);
    double share = 0, root = 0;
    MPI_Reduce_scatter_block(shares.data(), &share, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(&own, &root, 1, MPI_DOUBLE, MPI_SUM, size - 1, MPI_COMM_WORLD);
    if (rank == size - 1)
        std::printf("short %a long %a float %a scan %a share %a root %a\n", brief, extended, double(sums[2]), before, share,
                    root);
    MPI_Finalize();
}
