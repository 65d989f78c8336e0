/* Threads that add over a communicator each, at the same time: the order in which they call is drawn by the machine. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 3, SUMS = 40 };
static MPI_Comm comms[THREADS];
static int rank;

static void *work(void *number) {
    const int t = (int)(long)number;
    double x = rank + 1.0 / (t + 1), y;
    for (int i = 0; i < SUMS; ++i) {
        MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comms[t]);
        x = y / 3 + i;
        if (i % 7 == (getpid() + t) % 7) usleep(300);
    }
    return NULL;
}

int main(void) {
    int provided;
    pthread_t threads[THREADS];
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    if (provided < MPI_THREAD_MULTIPLE) return printf("no threads\n"), MPI_Finalize();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int t = 0; t < THREADS; ++t) MPI_Comm_dup(MPI_COMM_WORLD, comms + t);
    for (long t = 1; t < THREADS; ++t) pthread_create(threads + t, NULL, work, (void *)t);
    work((void *)0);
    for (int t = 1; t < THREADS; ++t) pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; ++t) MPI_Comm_free(comms + t);
    MPI_Finalize();
    return 0;
}
