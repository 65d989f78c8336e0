/* Reductions of values with their indices, in every pair type of C and of Fortran, with ties.
   argv[1]: minloc or maxloc. GAP: the byte in the gaps of the pairs. ODD, if set: the value of rank 1 in
   element 0, of floating-point types. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3 };
static int rank, size, gap;
static const char *odd;

static void reduce(void *in, void *out, size_t bytes, MPI_Datatype type, MPI_Op op) {
    MPI_Request request;
    MPI_Allreduce(in, out, N, type, op, MPI_COMM_WORLD);
    MPI_Reduce(in, out, N, type, op, size - 1, MPI_COMM_WORLD);
    MPI_Scan(in, out, N, type, op, MPI_COMM_WORLD);
    MPI_Exscan(in, out, N, type, op, MPI_COMM_WORLD);
    MPI_Iallreduce(in, out, N, type, op, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
#if MPI_VERSION >= 4
    MPI_Allreduce_init(in, out, N, type, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
#endif
    memcpy(out, in, bytes);
    MPI_Allreduce(MPI_IN_PLACE, out, N, type, op, MPI_COMM_WORLD);
    MPI_Bcast(out, N, type, 0, MPI_COMM_WORLD);
}

#define PAIRS(VALUE, INDEX, TYPE, FLOATING)                                                                \
    if (TYPE != MPI_DATATYPE_NULL) {                                                                       \
        struct { VALUE value; INDEX index; } in[N], out[N];                                                \
        char *bytes = (char *)in;                                                                          \
        for (size_t i = 0; i < sizeof in; ++i) bytes[i] = (char)gap;                                       \
        memset(out, gap, sizeof out);                                                                      \
        for (int i = 0; i < N; ++i) {                                                                      \
            VALUE value = (VALUE)((rank * 7 + i * 5) % 3);                                                 \
            if (FLOATING && odd && rank == 1 && i == 0) value = (VALUE)strtod(odd, NULL);                  \
            memcpy(&in[i].value, &value, sizeof value == 16 ? 10 : sizeof value);                          \
            in[i].index = rank * 10 + i;                                                                   \
        }                                                                                                  \
        reduce(in, out, sizeof in, TYPE, strcmp(argv[1], "maxloc") ? MPI_MINLOC : MPI_MAXLOC);             \
    }

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2) return 1;
    gap = getenv("GAP") ? atoi(getenv("GAP")) : 0;
    odd = getenv("ODD");
    PAIRS(double, int, MPI_DOUBLE_INT, 1)
    PAIRS(float, int, MPI_FLOAT_INT, 1)
    PAIRS(long, int, MPI_LONG_INT, 0)
    PAIRS(int, int, MPI_2INT, 0)
    PAIRS(short, int, MPI_SHORT_INT, 0)
    PAIRS(long double, int, MPI_LONG_DOUBLE_INT, 1)
    PAIRS(float, float, MPI_2REAL, 1)
    PAIRS(double, double, MPI_2DOUBLE_PRECISION, 1)
    PAIRS(int, int, MPI_2INTEGER, 0)
    MPI_Finalize();
    return 0;
}
