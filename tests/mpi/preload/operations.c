/* Reductions by operations of the program: a sum in double-double of pairs of doubles, and a product of 2x2 matrices, which does not
   commute. Prints the results of rank 0 in hexadecimal. */
#include <mpi.h>
#include <stdio.h>

typedef struct { double high, low; } Double2;

void add_double2(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; ++i) {
        Double2 a = ((Double2 *)in)[i], *b = (Double2 *)inout + i;
        double s = a.high + b->high, v = s - a.high, e = (a.high - (s - v)) + (b->high - v) + a.low + b->low;
        b->high = s + e;
        b->low = e - (b->high - s);
    }
}

static void multiply(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; ++i) {
        double *a = (double *)in + 4 * i, *b = (double *)inout + 4 * i, c[4];
        for (int k = 0; k < 4; ++k) c[k] = a[k / 2 * 2] * b[k % 2] + a[k / 2 * 2 + 1] * b[2 + k % 2];
        for (int k = 0; k < 4; ++k) b[k] = c[k];
    }
}

int main(int argc, char **argv) {
    int rank;
    MPI_Op sum, product;
    MPI_Datatype two, four;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_contiguous(2, MPI_DOUBLE, &two);
    MPI_Type_contiguous(4, MPI_DOUBLE, &four);
    MPI_Type_commit(&two);
    MPI_Type_commit(&four);
    MPI_Op_create(add_double2, 1, &sum);
    MPI_Op_create(multiply, 0, &product);
    Double2 x = {0.1 * (rank + 1), 1e-20}, y = {0, 0}, z;
    double m[4] = {1, rank + 1, 0, 1}, p[4] = {0};
    MPI_Allreduce(&x, &y, 1, two, sum, MPI_COMM_WORLD);
    z = x;
    MPI_Allreduce(MPI_IN_PLACE, &z, 1, two, sum, MPI_COMM_WORLD);
    MPI_Reduce(m, p, 1, four, product, 0, MPI_COMM_WORLD);
    MPI_Iallreduce(m, p, 1, four, product, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 0) printf("%a %a %a\n", y.high, z.high, p[1]);
    MPI_Op_free(&sum);
    MPI_Op_free(&product);
    MPI_Type_free(&two);
    MPI_Type_free(&four);
    MPI_Finalize();
    return 0;
}
