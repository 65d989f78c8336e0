/* Legal calls of MPI drawn by a seed, and a list of them with what each took and gave: drawn SEED STEPS FILE-
   A line for each call, in the order in which they began: NAME, bytes given and got in hexadecimal, `-` for none. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100000, LONGEST = 40 };
static struct { char name[32]; char given[LONGEST * 16 + 1], got[LONGEST * 16 + 1]; } calls[MOST];
static int made, rank, size;
static unsigned long long state;

static unsigned draw(unsigned n) { /* the same on all ranks */
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state >> 33) % n;
}

static void hex(char *text, const double *x, int n) {
    const unsigned char *bytes = (const unsigned char *)x;
    for (int i = 0; i < 8 * n; ++i) sprintf(text + 2 * i, "%02x", bytes[i]);
    if (!n) strcpy(text, "none");
}

static int call(const char *name, const double *given, int n) {
    strcpy(calls[made].name, name);
    strcpy(calls[made].given, "-");
    strcpy(calls[made].got, "-");
    if (given) hex(calls[made].given, given, n);
    return made++;
}

static void got(int at, const double *x, int n) { /* a reduction of nothing has no total */
    if (n || !strstr(calls[at].name, "reduce")) hex(calls[at].got, x, n);
}

/* Ends requests in one of the ways that there are. */
static void end(int n, MPI_Request *requests) {
    MPI_Status statuses[64];
    int left = n, index, flag, some[64], count;
    switch (draw(8)) {
        case 0: MPI_Waitall(n, requests, MPI_STATUSES_IGNORE); return;
        case 1: MPI_Waitall(n, requests, statuses); return;
        case 2: for (int i = n; i--;) MPI_Wait(requests + i, MPI_STATUS_IGNORE); return;
        case 3: for (int i = 0; i < n; ++i) for (flag = 0; !flag;) MPI_Test(requests + i, &flag, statuses); return;
        case 4: for (; left; --left) MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE); return;
        case 5: for (flag = 0; !flag;) MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE); return;
        case 6: while (left) { MPI_Testsome(n, requests, &count, some, statuses); left -= count; } return;
        default: while (left) { MPI_Testany(n, requests, &index, &flag, statuses); left -= flag; } return;
    }
}

int main(int argc, char **argv) {
    static double x[64][LONGEST], y[64][LONGEST];
    int at[64], many;
    MPI_Request q[64], r[64];
    MPI_Status status;
    MPI_Message message;
    MPI_Comm comm, comms[3];
    char path[4096];
    (void)argc;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    state = strtoull(argv[1], NULL, 10) * 2654435761u + 12345;
    many = atoi(argv[2]);
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, comms + 1);
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, comms + 2);
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int step = 0; step < many; ++step) {
        const int k = 1 + (int)draw(8), n = (int)draw(LONGEST), source = draw(2) ? MPI_ANY_SOURCE : left;
        for (int i = 0; i < 64; ++i)
            for (int j = 0; j < LONGEST; ++j) x[i][j] = rank + step * 0.125 + i * 1e-3 + j * 1e3, y[i][j] = -1;
        comm = comms[draw(3)];
        switch (draw(14)) {
            case 0:
                at[0] = call("MPI_Allreduce", x[0], n);
                MPI_Allreduce(x[0], y[0], n, MPI_DOUBLE, MPI_SUM, comm);
                got(at[0], y[0], n);
                break;
            case 1: /* some end at once, and share a request */
                for (int i = 0; i < k; ++i) {
                    at[i] = call("MPI_Iallreduce", x[i], n);
                    MPI_Iallreduce(x[i], y[i], n, MPI_DOUBLE, MPI_MAX, draw(2) ? MPI_COMM_SELF : comm, q + i);
                }
                end(k, q);
                for (int i = 0; i < k; ++i) got(at[i], y[i], n);
                break;
            case 2:
                for (int i = 0; i < k; ++i) {
                    at[i] = call("MPI_Irecv", NULL, 0);
                    MPI_Irecv(y[i], LONGEST, MPI_DOUBLE, source, i, comm, q + i);
                }
                for (int i = 0; i < k; ++i) {
                    call("MPI_Isend", x[i], n);
                    MPI_Isend(x[i], n, MPI_DOUBLE, right, i, comm, r + i);
                }
                end(k, q);
                end(k, r);
                for (int i = 0; i < k; ++i) got(at[i], y[i], n);
                break;
            case 3:
                for (int i = 0; i < k; ++i) {
                    at[i] = call("MPI_Irecv", NULL, 0);
                    MPI_Irecv(y[i], n, MPI_DOUBLE, MPI_PROC_NULL, i, comm, q + i);
                    call("MPI_Issend", x[i], n);
                    MPI_Issend(x[i], n, MPI_DOUBLE, MPI_PROC_NULL, i, comm, r + i);
                }
                end(k, q);
                end(k, r);
                for (int i = 0; i < k; ++i) got(at[i], y[i], 0);
                break;
            case 4:
                at[0] = call("MPI_Sendrecv", x[0], n);
                MPI_Sendrecv(x[0], n, MPI_DOUBLE, right, 1, y[0], LONGEST, MPI_DOUBLE, source, 1, comm, &status);
                got(at[0], y[0], n);
                break;
            case 5:
                at[0] = call("MPI_Sendrecv_replace", x[0], n);
                MPI_Sendrecv_replace(x[0], n, MPI_DOUBLE, right, 1, source, 1, comm, MPI_STATUS_IGNORE);
                got(at[0], x[0], n);
                break;
            case 6:
                MPI_Recv_init(y[0], n, MPI_DOUBLE, source, 5, comm, q);
                MPI_Send_init(x[0], n, MPI_DOUBLE, right, 5, comm, q + 1);
                for (int i = 0; i < k; ++i) {
                    for (int j = 0; j < n; ++j) x[0][j] += 1;
                    at[0] = call("MPI_Recv_init", NULL, 0);
                    call("MPI_Send_init", x[0], n);
                    if (i % 2) MPI_Startall(2, q);
                    else MPI_Start(q), MPI_Start(q + 1);
                    MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
                    got(at[0], y[0], n);
                }
                MPI_Request_free(q);
                MPI_Request_free(q + 1);
                break;
            case 7:
                call("MPI_Isend", x[0], n);
                MPI_Isend(x[0], n, MPI_DOUBLE, right, 7, comm, q);
                MPI_Request_free(q);
                call("MPI_Mprobe", NULL, 0);
                MPI_Mprobe(MPI_ANY_SOURCE, 7, comm, &message, &status);
                at[0] = call("MPI_Mrecv", NULL, 0);
                MPI_Mrecv(y[0], LONGEST, MPI_DOUBLE, &message, MPI_STATUS_IGNORE);
                got(at[0], y[0], n);
                MPI_Barrier(MPI_COMM_WORLD); /* x[0] is free again */
                call("MPI_Barrier", NULL, 0);
                break;
            case 8: {
                int flag = 0;
                call("MPI_Isend", x[0], n);
                MPI_Isend(x[0], n, MPI_DOUBLE, right, 7, comm, q);
                while (!flag) MPI_Improbe(MPI_ANY_SOURCE, 7, comm, &flag, &message, &status);
                call("MPI_Improbe", NULL, 0);
                at[0] = call("MPI_Imrecv", NULL, 0);
                MPI_Imrecv(y[0], LONGEST, MPI_DOUBLE, &message, q + 1);
                end(2, q);
                got(at[0], y[0], n);
                break;
            }
            case 9: { /* a type that is freed while messages of it are under way */
                MPI_Datatype type;
                MPI_Type_contiguous(2, MPI_DOUBLE, &type);
                MPI_Type_commit(&type);
                at[0] = call("MPI_Irecv", NULL, 0);
                MPI_Irecv(y[0], LONGEST / 2, type, source, 9, comm, q);
                call("MPI_Isend", x[0], n / 2 * 2);
                MPI_Isend(x[0], n / 2, type, right, 9, comm, q + 1);
                MPI_Type_free(&type);
                end(2, q);
                got(at[0], y[0], n / 2 * 2);
                break;
            }
            case 10: { /* a communicator that is freed while messages on it are under way */
                MPI_Comm own;
                MPI_Comm_dup(comm, &own);
                at[0] = call("MPI_Irecv", NULL, 0);
                MPI_Irecv(y[0], n, MPI_DOUBLE, source, 9, own, q);
                call("MPI_Isend", x[0], n);
                MPI_Isend(x[0], n, MPI_DOUBLE, right, 9, own, q + 1);
                MPI_Comm_free(&own);
                end(2, q);
                got(at[0], y[0], n);
                break;
            }
            case 11:
                at[0] = call("MPI_Bcast", rank == 0 ? x[0] : NULL, n);
                MPI_Bcast(x[0], n, MPI_DOUBLE, 0, comm);
                got(at[0], x[0], n);
                break;
            case 12: {
                int flag = 0;
                call("MPI_Isend", x[0], n);
                MPI_Isend(x[0], n, MPI_DOUBLE, right, 3, comm, q);
                while (!flag) MPI_Iprobe(MPI_ANY_SOURCE, 3, comm, &flag, MPI_STATUS_IGNORE);
                call("MPI_Iprobe", NULL, 0);
                at[0] = call("MPI_Recv", NULL, 0);
                MPI_Recv(y[0], LONGEST, MPI_DOUBLE, source, 3, comm, MPI_STATUS_IGNORE);
                MPI_Wait(q, MPI_STATUS_IGNORE);
                got(at[0], y[0], n);
                break;
            }
            default: /* a part of what there is room for, by a type with gaps */ {
                MPI_Datatype type;
                double flat[LONGEST];
                const int half = n / 2;
                for (int j = 0; j < half; ++j) flat[j] = x[0][2 * j];
                MPI_Type_vector(half, 1, 2, MPI_DOUBLE, &type);
                MPI_Type_commit(&type);
                call("MPI_Isend", flat, half);
                MPI_Isend(x[0], 1, type, right, 4, comm, q);
                at[0] = call("MPI_Recv", NULL, 0);
                MPI_Recv(y[0], LONGEST, MPI_DOUBLE, source, 4, comm, &status);
                MPI_Wait(q, MPI_STATUS_IGNORE);
                MPI_Type_free(&type);
                got(at[0], y[0], half);
            }
        }
    }
    snprintf(path, sizeof path, "%s%d", argv[3], rank);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < made; ++i) fprintf(file, "%s %s %s\n", calls[i].name, calls[i].given, calls[i].got);
    fclose(file);
    MPI_Comm_free(comms + 1);
    MPI_Comm_free(comms + 2);
    MPI_Finalize();
    return 0;
}
