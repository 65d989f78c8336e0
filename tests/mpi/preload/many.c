/* Makes many objects of each kind, as programs do that make new ones in every step: many TIMES
   One sum and one maximum are the library's; half of the types have a name that is no UTF-8 and has an end of line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void add(void *in, void *out, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; ++i) ((double *)out)[i] += ((double *)in)[i];
}

int main(int argc, char **argv) {
    const int times = atoi(argv[1]), nested = times < 300 ? times : 300;
    double x = 1, y;
    (void)argc;
    MPI_Init(&argc, &argv);
    MPI_Op *ops = malloc(sizeof *ops * (size_t)times);
    for (int i = 0; i < times; ++i) { /* all at once: none has the handle of another */
        MPI_Op_create(add, 1, &ops[i]);
        MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, ops[i], MPI_COMM_WORLD);
    }
    for (int i = 0; i < times; ++i) MPI_Op_free(&ops[i]);
    MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Datatype *types = malloc(sizeof *types * (size_t)times);
    for (int i = 0; i < times; ++i) {
        MPI_Type_contiguous(1, MPI_BYTE, &types[i]);
        MPI_Type_commit(&types[i]);
        if (i % 2) MPI_Type_set_name(types[i], "caf\xc3\xa9 \xe2\x80\xa8\"\xff");
        MPI_Bcast(&x, 1, types[i], 0, MPI_COMM_WORLD);
    }
    for (int i = 0; i < times; ++i) MPI_Type_free(&types[i]);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < nested; ++i) {
        MPI_Comm next;
        MPI_Comm_dup(comm, &next);
        MPI_Comm_free(&comm);
        comm = next;
        MPI_Allreduce(&x, &y, 1, MPI_FLOAT, MPI_MAX, comm);
    }
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
