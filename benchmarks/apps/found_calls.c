/* Nanoseconds of calls that look for requests and messages: the median of many rounds, on each line's one rank.
 * A test and a probe without success; a wait for any of two requests, with the calls that post them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 41, CALLS = 2000, WAYS = 3 };

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    static double took[WAYS][ROUNDS];
    double x = 1, y = 0, never;
    MPI_Request q[2], waiting;
    MPI_Comm own;
    int flag, rank;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_SELF, &own);
    MPI_Irecv(&never, 1, MPI_DOUBLE, 0, 1, own, &waiting);
    for (int round = 0; round < ROUNDS && !rank; ++round) {
        const double begin = MPI_Wtime();
        for (int i = 0; i < CALLS; ++i) MPI_Test(&waiting, &flag, MPI_STATUS_IGNORE);
        const double tested = MPI_Wtime();
        for (int i = 0; i < CALLS; ++i) MPI_Iprobe(0, 2, own, &flag, MPI_STATUS_IGNORE);
        const double probed = MPI_Wtime();
        for (int i = 0; i < CALLS / 4; ++i) { /* four calls */
            MPI_Irecv(&y, 1, MPI_DOUBLE, 0, 3, own, q);
            MPI_Isend(&x, 1, MPI_DOUBLE, 0, 3, own, q + 1);
            MPI_Waitany(2, q, &flag, MPI_STATUS_IGNORE);
            MPI_Waitany(2, q, &flag, MPI_STATUS_IGNORE);
        }
        const double found = MPI_Wtime();
        took[0][round] = tested - begin, took[1][round] = probed - tested, took[2][round] = found - probed;
    }
    MPI_Cancel(&waiting);
    MPI_Wait(&waiting, MPI_STATUS_IGNORE);
    for (int way = 0; way < WAYS && !rank; ++way) {
        qsort(took[way], ROUNDS, sizeof(double), ascending);
        printf("%.1f ", 1e9 * took[way][ROUNDS / 2] / CALLS);
    }
    MPI_Finalize();
    return 0;
}
