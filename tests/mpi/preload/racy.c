/* Programs whose path depends on which request completes first, or which message a probe sees: racy WAY SEED.
 * Rank 0 takes the messages of the others, whose delays are drawn from SEED, and prints the order in which it saw them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EACH = 6, MOST = 64 };

static int rank, size, seen[16 * MOST], n;

static void see(int what) { seen[n++ % (16 * MOST)] = what; }

static void pause_a_while(void) { usleep((unsigned)(rand() % 2500)); }

/* Takes one message of each other rank at a time, by a call that completes any or some requests. */
static void by_requests(const char *way) {
    double got[MOST];
    MPI_Request q[MOST];
    MPI_Status statuses[MOST];
    int left[MOST], done, flag, which[MOST] = {0}, rest = (size - 1) * EACH;
    for (int r = 1; r < size; ++r) left[r - 1] = EACH;
    for (int r = 1; r < size; ++r) MPI_Irecv(got + r - 1, 1, MPI_DOUBLE, r, 5, MPI_COMM_WORLD, q + r - 1);
    while (rest) {
        done = 1, flag = 1;
        if (!strcmp(way, "waitany")) {
            MPI_Waitany(size - 1, q, which, MPI_STATUS_IGNORE);
        } else if (!strcmp(way, "waitsome")) {
            usleep(700);
            MPI_Waitsome(size - 1, q, &done, which, statuses);
        } else if (!strcmp(way, "testany")) {
            MPI_Testany(size - 1, q, which, &flag, statuses);
        } else if (!strcmp(way, "testsome")) {
            usleep(300);
            MPI_Testsome(size - 1, q, &done, which, MPI_STATUSES_IGNORE);
        } else { /* a loop over MPI_Test */
            for (flag = 0; !flag;) {
                *which = (*which + 1) % (size - 1);
                if (left[*which]) MPI_Test(q + *which, &flag, MPI_STATUS_IGNORE);
            }
        }
        for (int i = 0; flag && i < done; ++i) {
            const int r = which[i];
            see((int)got[r]);
            --rest;
            if (--left[r]) MPI_Irecv(got + r, 1, MPI_DOUBLE, r + 1, 5, MPI_COMM_WORLD, q + r);
        }
    }
}

/* Waits for any of persistent receives, a generalised request and a null one. */
static int query(void *state, MPI_Status *status) {
    (void)state;
    MPI_Status_set_elements(status, MPI_INT, 0);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}
static int nothing(void *state) { return (void)state, MPI_SUCCESS; }
static int cancel(void *state, int complete) { return (void)state, (void)complete, MPI_SUCCESS; }

static void by_persistent(void) {
    double got[MOST];
    MPI_Request q[MOST];
    int index, left[MOST], rest = (size - 1) * EACH + 1;
    q[0] = MPI_REQUEST_NULL;
    for (int r = 1; r < size; ++r) {
        MPI_Recv_init(got + r, 1, MPI_DOUBLE, r, 5, MPI_COMM_WORLD, q + r);
        left[r] = EACH;
    }
    MPI_Startall(size - 1, q + 1);
    MPI_Grequest_start(query, nothing, cancel, NULL, q + size);
    for (; rest; --rest) {
        if (rest == size * EACH / 2) MPI_Grequest_complete(q[size]);
        MPI_Waitany(size + 1, q, &index, MPI_STATUS_IGNORE);
        see(index == size ? -1 : (int)got[index]);
        if (index < size && --left[index]) MPI_Start(q + index);
    }
    MPI_Waitany(size + 1, q, &index, MPI_STATUS_IGNORE); /* none is active */
    see(index == MPI_UNDEFINED);
    for (int r = 1; r < size; ++r) MPI_Request_free(q + r);
}

/* Looks for messages; `tags`: for those of two tags in turn. */
static void by_probes(const char *way, int tags) {
    double got;
    int flag, count = 0;
    MPI_Status status;
    MPI_Message message;
    for (int i = 0; i < (size - 1) * EACH; ++i) {
        if (!strcmp(way, "probe")) {
            usleep(400);
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Recv(&got, 1, MPI_DOUBLE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (!strcmp(way, "improbe")) {
            for (flag = 0; !flag; ++count)
                MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status);
            MPI_Mrecv(&got, 1, MPI_DOUBLE, &message, MPI_STATUS_IGNORE);
        } else if (!strcmp(way, "named")) { /* each rank in turn */
            for (flag = 0; !flag; ++count)
                MPI_Iprobe(1 + count % (size - 1), MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
            MPI_Recv(&got, 1, MPI_DOUBLE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            for (flag = 0; !flag; ++count)
                MPI_Iprobe(MPI_ANY_SOURCE, tags ? 5 + count % 2 : MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
            MPI_Recv(&got, 1, MPI_DOUBLE, MPI_ANY_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
        }
        see((int)got);
    }
    see(count); /* the number of probes, too */
}

/* Receives from any source in several requests, which it waits for in the order of their completion. */
static void by_any(void) {
    double got[MOST];
    MPI_Request q[MOST];
    int index;
    const int all = (size - 1) * EACH;
    for (int i = 0; i < all; ++i) MPI_Irecv(got + i, 1, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, q + i);
    for (int i = 0; i < all; ++i) {
        MPI_Waitany(all, q, &index, MPI_STATUS_IGNORE);
        see(index);
        see((int)got[index]);
    }
}

/* As above, over an intercommunicator whose other group is all ranks but 0, with a receive that is cancelled, looked at by
 * calls that leave requests as they are, and ended by a test of all. */
static void by_inter(MPI_Comm inter) {
    double got[MOST], never;
    MPI_Request q[MOST];
    MPI_Status status;
    int index, flag, polls = 0;
    const int all = (size - 1) * EACH, half = all / 2;
    MPI_Irecv(&never, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 99, inter, q + all);
    for (int i = 0; i < all; ++i) MPI_Irecv(got + i, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 5 + i % 2, inter, q + i);
    for (int i = 0; i < half; ++i) {
        MPI_Waitany(all, q, &index, &status);
        see(index);
        see((int)got[index]);
        for (int k = 0; k < all; ++k) MPI_Request_get_status(q[k], &flag, MPI_STATUS_IGNORE), see(flag);
    }
    for (flag = 0; !flag; ++polls) MPI_Testall(all, q, &flag, MPI_STATUSES_IGNORE);
    see(polls);
    MPI_Cancel(q + all);
    for (flag = 0; !flag;) MPI_Testany(all + 1, q, &index, &flag, &status);
    MPI_Test_cancelled(&status, &flag);
    see(index), see(flag);
    for (int i = 0; i < all; ++i) see((int)got[i]);
}

/* Probes as often after each test as the nanoseconds of a clock say: no two runs take the same path, however fast they are. */
static void by_clock(void) {
    double got[MOST];
    MPI_Request q[MOST];
    struct timespec now;
    int flag, ignored;
    const int all = (size - 1) * EACH;
    for (int i = 0; i < all; ++i) MPI_Irecv(got + i, 1, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, q + i);
    for (int i = 0; i < all; i += flag) {
        MPI_Test(q + i, &flag, MPI_STATUS_IGNORE);
        if (flag) see((int)got[i]);
        clock_gettime(CLOCK_MONOTONIC, &now);
        for (long k = now.tv_nsec % 7; k > 0; --k)
            MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &ignored, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *way = argv[1], *delays = getenv("DELAYS"), *silent = getenv("SILENT");
    srand((unsigned)(rank + 100 * atoi(delays ? delays : "0")));
    const int tags = !strcmp(way, "tags");
    MPI_Comm comm = MPI_COMM_WORLD, local;
    if (!strcmp(way, "inter")) {
        MPI_Comm_split(MPI_COMM_WORLD, !rank, rank, &local);
        MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, !rank, 7, &comm);
    }
    if (rank) {
        for (int k = 0; k < EACH && !(silent && atoi(silent) == rank); ++k) {
            const double x = 100 * rank + k;
            pause_a_while();
            MPI_Send(&x, 1, MPI_DOUBLE, 0, 5 + ((tags || !strncmp(way, "i", 1)) && k % 2), comm);
        }
        if (silent && atoi(silent) == rank) { /* another rank sends in its place */
            usleep(100000);
        } else if (silent && atoi(silent) == rank % (size - 1) + 1) {
            for (int k = 0; k < EACH; ++k) {
                const double x = 1000 * rank + k;
                MPI_Send(&x, 1, MPI_DOUBLE, 0, 5, MPI_COMM_WORLD);
            }
        }
    } else if (!strcmp(way, "persistent")) {
        by_persistent();
    } else if (!strcmp(way, "inter")) {
        by_inter(comm);
    } else if (!strcmp(way, "any")) {
        by_any();
    } else if (!strcmp(way, "clock")) {
        by_clock();
    } else if (strstr("probe improbe iprobe named tags", way)) {
        by_probes(way, tags);
    } else {
        by_requests(way);
    }
    if (!rank) {
        for (int i = 0; i < n; ++i) printf("%d ", seen[i % (16 * MOST)]);
        printf("\n");
    }
    MPI_Finalize();
    return 0;
}
