/* Looks for requests in two threads, or in one: looked_for THREADS CALLS. */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>

static long calls;

static void *look(void *comm) {
    int flag, size, rank;
    MPI_Request q[2];
    double x = 1, y = 0;
    MPI_Comm_size(*(MPI_Comm *)comm, &size);
    MPI_Comm_rank(*(MPI_Comm *)comm, &rank);
    MPI_Irecv(&y, 1, MPI_DOUBLE, (rank + size - 1) % size, 1, *(MPI_Comm *)comm, q);
    MPI_Irecv(&y, 0, MPI_DOUBLE, (rank + size - 1) % size, 2, *(MPI_Comm *)comm, q + 1);
    for (long i = 0; i < calls; ++i) MPI_Test(q, &flag, MPI_STATUS_IGNORE);
    MPI_Send(&x, 1, MPI_DOUBLE, (rank + 1) % size, 1, *(MPI_Comm *)comm);
    for (flag = 0; !flag;) MPI_Test(q, &flag, MPI_STATUS_IGNORE);
    MPI_Send(&x, 0, MPI_DOUBLE, (rank + 1) % size, 2, *(MPI_Comm *)comm);
    MPI_Wait(q + 1, MPI_STATUS_IGNORE);
    for (long i = 0; i < calls; ++i) { /* to itself: a receive, a send and two waits for any */
        MPI_Irecv(&y, 1, MPI_DOUBLE, rank, 3, *(MPI_Comm *)comm, q);
        MPI_Isend(&x, 1, MPI_DOUBLE, rank, 3, *(MPI_Comm *)comm, q + 1);
        MPI_Waitany(2, q, &flag, MPI_STATUS_IGNORE);
        MPI_Waitany(2, q, &flag, MPI_STATUS_IGNORE);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1, level;
    MPI_Comm comms[2];
    pthread_t other;
    calls = argc > 2 ? atol(argv[2]) : 10;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    for (int i = 0; i < 2; ++i) MPI_Comm_dup(MPI_COMM_WORLD, comms + i);
    if (threads > 1) pthread_create(&other, NULL, look, comms + 1);
    look(comms);
    if (threads > 1) pthread_join(other, NULL);
    for (int i = 0; i < 2; ++i) MPI_Comm_free(comms + i);
    MPI_Finalize();
    return 0;
}
