// Sums of floats by nonblocking and persistent calls, each beside the blocking call with the same contributions. Rank 0 prints
// the names of those that differ, and how many were compared.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define MOST 20000

static int rank, ranks, compared, bad;
static double own[MOST], blocking[MOST], later[MOST];

static void same(const char *name, const void *a, const void *b, size_t bytes) {
    int differ = memcmp(a, b, bytes) != 0, any;
    MPI_Allreduce(&differ, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    ++compared;
    if (any && rank == 0) printf("%s differs\n", name);
    bad += any;
}

static void fill(int n) {
    for (int i = 0; i < n; ++i) own[i] = ldexp(sin(1.0 + i + 977.0 * rank), (i * 7 + rank * 13) % 40);
}

static void each(int n) {
    MPI_Request request;
    int counts[64], mine = n / ranks + (rank < n % ranks);
    fill(n);
    for (int r = 0; r < ranks; ++r) counts[r] = n / ranks + (r < n % ranks);

    MPI_Allreduce(own, blocking, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Iallreduce(own, later, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    same("Iallreduce", blocking, later, n * sizeof *later);

    memcpy(later, own, n * sizeof *own);
    MPI_Iallreduce(MPI_IN_PLACE, later, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    for (int done = 0; !done;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    same("Iallreduce in place", blocking, later, n * sizeof *later);

    MPI_Reduce(own, blocking, n, MPI_DOUBLE, MPI_SUM, ranks - 1, MPI_COMM_WORLD);
    MPI_Ireduce(own, later, n, MPI_DOUBLE, MPI_SUM, ranks - 1, MPI_COMM_WORLD, &request);
    MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
    if (rank < ranks - 1) memcpy(later, blocking, n * sizeof *later);
    same("Ireduce", blocking, later, n * sizeof *later);

    MPI_Reduce_scatter(own, blocking, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Ireduce_scatter(own, later, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    same("Ireduce_scatter", blocking, later, mine * sizeof *later);

    MPI_Scan(own, blocking, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Iscan(own, later, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    same("Iscan", blocking, later, n * sizeof *later);

    MPI_Exscan(own, blocking, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Iexscan(own, later, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank) same("Iexscan", blocking, later, n * sizeof *later);
    else same("Iexscan", own, own, sizeof *own);

    // Two of one communicator under way, waited for in the other order; a block of complex numbers.
    MPI_Request both[2];
    double first[MOST];
    MPI_Iallreduce(own, first, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &both[0]);
    MPI_Iallreduce(own, later, n / 2, MPI_C_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD, &both[1]);
    for (int k = 1; k >= 0; --k) MPI_Wait(&both[rank % 2 ? 1 - k : k], MPI_STATUS_IGNORE);
    MPI_Allreduce(own, blocking, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    same("two at a time", blocking, first, n * sizeof *first);
    same("complex", blocking, later, n / 2 * 2 * sizeof *later);

    MPI_Iallreduce(own, later, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    for (int over = 0; !over;) MPI_Request_get_status(request, &over, MPI_STATUS_IGNORE);
    same("known by its status", blocking, later, n * sizeof *later);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    same("and waited for", blocking, later, n * sizeof *later);

#if MPI_VERSION >= 4 || OMPI_MAJOR_VERSION >= 5
    MPI_Allreduce_init(own, later, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int k = 0; k < 3; ++k) {
        for (int i = 0; i < n; ++i) own[i] *= 1.1;
        MPI_Allreduce(own, blocking, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        same("Allreduce_init", blocking, later, n * sizeof *later);
    }
    MPI_Request_free(&request);
#endif
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    each(3);
    each(64);
    each(MOST);
    if (rank == 0) printf("%d compared, %d differ\n", compared, bad);
    MPI_Finalize();
    return 0;
}
