/* Messages from any source, taken in several ways: unrepeated WAY. ORDER says who sends first. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size, got[64], n;

static void take(double x) { got[n++] = (int)x; }

int main(int argc, char **argv) {
    double x, y[64];
    MPI_Request q[64];
    MPI_Status status;
    MPI_Message message;
    int flag, index;
    (void)argc;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *way = argv[1], *order = getenv("ORDER");
    const int all = 2 * (size - 1);
    if (rank) {
        usleep(60000u * (unsigned)(strchr(order, '0' + rank) - order));
        for (int k = 0; k < 2; ++k) x = 10 * rank + k, MPI_Send(&x, 1, MPI_DOUBLE, 0, 5, MPI_COMM_WORLD);
    } else if (!strcmp(way, "persistent")) {
        MPI_Recv_init(y, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, q);
        for (int i = 0; i < all; ++i) MPI_Start(q), MPI_Wait(q, MPI_STATUS_IGNORE), take(y[0]);
        MPI_Request_free(q);
    } else if (!strcmp(way, "sendrecv")) {
        for (int i = 0; i < all; ++i) {
            MPI_Sendrecv(&x, 0, MPI_DOUBLE, MPI_PROC_NULL, 0, y, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
            take(y[0]);
        }
    } else if (!strcmp(way, "iprobe")) {
        for (int i = 0; i < all; ++i) {
            for (flag = 0; !flag;) MPI_Iprobe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &flag, &status);
            MPI_Recv(y, 1, MPI_DOUBLE, status.MPI_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            take(y[0]);
        }
    } else if (!strcmp(way, "improbe")) {
        for (int i = 0; i < all; ++i) {
            for (flag = 0; !flag;) MPI_Improbe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &flag, &message, &status);
            MPI_Mrecv(y, 1, MPI_DOUBLE, &message, MPI_STATUS_IGNORE);
            take(y[0]);
        }
    } else { /* waitany */
        for (int i = 0; i < all; ++i) MPI_Irecv(y + i, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, q + i);
        for (int i = 0; i < all; ++i) MPI_Waitany(all, q, &index, &status);
        for (int i = 0; i < all; ++i) take(y[i]);
    }
    if (!rank) {
        for (int i = 0; i < n; ++i) printf("%d ", got[i]);
        printf("\n");
    }
    MPI_Finalize();
    return 0;
}
