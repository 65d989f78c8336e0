/* Sums by fpna's library, under each of its guarantees. Prints them in hexadecimal on rank 0. */
#include <fpna.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, code = 0;
    double x[3], totals[3] = {0}, vector[3] = {0}, later[3] = {0};
    fpna_request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 3; ++i) x[i] = 0.1 * (rank + 1) + i;
    code |= fpna_sum_d(FPNA_RUN, MPI_COMM_WORLD, 3, 1, x, 1, 0, &totals[0], NULL);
    code |= fpna_sum_d(FPNA_LAYOUT, MPI_COMM_WORLD, 3, 1, x, 1, 0, &totals[1], NULL);
    code |= fpna_sum_d(FPNA_EXACT, MPI_COMM_WORLD, 3, 1, x, 1, 0, &totals[2], NULL);
    code |= fpna_allreduce(FPNA_EXACT, x, vector, 3, MPI_DOUBLE, MPI_COMM_WORLD);
    code |= fpna_iallreduce(FPNA_RUN, x, later, 3, MPI_DOUBLE, MPI_COMM_WORLD, &request);
    code |= fpna_wait(&request);
    MPI_Allreduce(x, vector, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); /* by the MPI library */
    if (rank == 0) printf("code %d: %a %a %a\n", code, totals[0], totals[1], totals[2]);
    MPI_Finalize();
    return code;
}
