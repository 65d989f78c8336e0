/* Ranks 1, 2, ... add a number each to the window of rank 0, in the order of arrival: ORDER=213 lets rank 2 come before rank 1.
 *
 *   updates HOW     fence: in an epoch of fences; lock: under locks, and rank 0 reads its window after a barrier;
 *                   one: only rank 1 accesses it, in an order that MPI keeps; store: rank 0 stores into it between the
 *                   fences of an epoch without accesses, a number that STORED gives */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, ranks;
    double memory = 0.1, own, sum;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *how = argv[1], *order = getenv("ORDER"), *place = order ? strchr(order, '0' + rank) : NULL;
    const int locks = !strcmp(how, "lock");
    own = rank == 1 ? 1e16 : rank == 3 ? -1e16 : 1;
    MPI_Win_create(&memory, rank ? 0 : sizeof memory, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (!locks) MPI_Win_fence(0, window);
    if (rank && strcmp(how, "store") && (rank == 1 || strcmp(how, "one"))) {
        usleep(place ? 100000 * (unsigned)(place - order) : 0);
        if (locks) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Accumulate(&own, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, MPI_SUM, window);
        if (locks) MPI_Win_unlock(0, window);
    }
    if (!rank && getenv("STORED")) memory = atof(getenv("STORED"));
    locks ? MPI_Barrier(MPI_COMM_WORLD) : MPI_Win_fence(0, window);
    if (locks && !rank) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    own = memory;
    if (locks && !rank) MPI_Win_unlock(0, window);
    MPI_Reduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank) printf("%.17g\n", sum);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
