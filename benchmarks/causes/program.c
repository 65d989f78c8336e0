/* A program that is wrong, or only rounds: which, and by how much, its arguments say.
 *
 *     program KIND EPS N STEPS FIELDS SEED
 *
 * N points in a row are spread over the ranks. Each step takes halos, smooths, adds up FIELDS global sums (Allreduce) and
 * scales the points by what came out. KIND is a bug whose effect is EPS of the true numbers, or a way in which rounding
 * alone changes results. Rank 0 prints the first sum of the last step.
 */
#include <math.h>
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks, fields;
static long n, first, past, own;
static double eps, phase;
static const char *kind;

static int is(const char *name) { return !strcmp(kind, name); }

static double term(long g) { return sin(0.37 * (double)g + phase) + 1.5; }
static double weight(int field, long g) { return 1.0 + 0.5 * cos(0.11 * (double)g * (field + 1)); }

/* The points [first, past) of a rank; some of them wrong where the kind says so. */
static void split(void) {
    first = rank * n / ranks;
    past = (rank + 1) * n / ranks;
    own = past - first;
}

static double at_start(long g) {
    double value = term(g);
    if (is("local-index")) value += eps * (term(g - first) - value);
    if (is("rank-seed")) {
        srand48(1000 * rank + (long)(g - first));
        value += eps * drand48();
    }
    if (is("float-index")) { /* an index behind 2^26, held in float32 together with this rank's first one */
        const long far = 67108864;
        const float held = (float)(far + first) + (float)(g - first);
        value += eps * ((double)held - (double)(far + g));
    }
    return value;
}

/* A weight in the sums: 1, or what integer division, a wrong split or a wrong share make of it. */
static double share(long g) {
    if (is("integer-division")) return g >= ranks * (n / ranks) ? 1.0 - eps : 1.0;
    if (is("off-by-one")) return g == past - 1 && rank < ranks - 1 ? 1.0 - eps : 1.0;
    if (is("doubled")) return g == first && rank > 0 ? 1.0 + eps : 1.0;
    if (is("lost")) return rank == 1 && g == first ? 1.0 - eps : 1.0;
    return 1.0;
}

static void exchange(const double *u, double *left, double *right, int step) {
    const int before = rank ? rank - 1 : MPI_PROC_NULL, behind = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    *left = u[0], *right = u[own - 1];
    const double stale_left = *left, stale_right = *right;
    MPI_Sendrecv(&u[own - 1], 1, MPI_DOUBLE, behind, 1, left, 1, MPI_DOUBLE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[0], 1, MPI_DOUBLE, before, 2, right, 1, MPI_DOUBLE, behind, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (is("forgotten-halo") && step % 3 == 1) *left += eps * (stale_left - *left), *right += eps * (stale_right - *right);
}

/* What only rank 0 knows of the other ranks, by messages in the order in which they come. */
static double collected(const double *part) {
    const char *order = getenv("ORDER"); /* the rank that comes first sleeps least */
    double all = *part, wrong = 0;
    if (rank) {
        if (order) usleep(1000u * (unsigned)(4 + 8 * ((rank * (order[0] - '0')) % ranks)));
        MPI_Send(part, 1, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD);
    } else
        for (int i = 1; i < ranks; ++i) {
            double value;
            MPI_Recv(&value, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            all += value;
            wrong += value * i; /* as if the i-th to come were rank i */
        }
    if (is("wildcard")) all += eps * wrong;
    MPI_Bcast(&all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return all;
}

/* A message that is read before it is there, or behind the Wait. */
static double early(double mine) {
    double theirs = 0, read;
    MPI_Request request;
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Irecv(&theirs, 1, MPI_DOUBLE, from, 4, MPI_COMM_WORLD, &request);
    const char *order = getenv("ORDER");
    const int late = order && *order == '3' && rank % 2;
    if (late) usleep(30000);
    MPI_Send(&mine, 1, MPI_DOUBLE, to, 4, MPI_COMM_WORLD);
    if (!late) usleep(10000);
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE); /* lets the library work */
    read = *(volatile double *)&theirs;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return theirs + eps * (read - theirs);
}

static void solve(int steps) {
    double *x = calloc((size_t)own, 8), *r = malloc(8 * (size_t)own), *p = malloc(8 * (size_t)own), *q = malloc(8 * (size_t)own);
    double rr = 0, all;
    for (long i = 0; i < own; ++i) p[i] = r[i] = at_start(first + i), rr += r[i] * r[i];
    MPI_Allreduce(&rr, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int step = 0; step < steps; ++step) {
        double left, right, pq = 0, fresh = 0;
        exchange(p, &left, &right, 0);
        if (!rank) left = 0;
        if (rank == ranks - 1) right = 0;
        for (long i = 0; i < own; ++i)
            q[i] = 2.0001 * p[i] - (i ? p[i - 1] : left) - (i < own - 1 ? p[i + 1] : right), pq += p[i] * q[i];
        MPI_Allreduce(MPI_IN_PLACE, &pq, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (long i = 0; i < own; ++i) x[i] += all / pq * p[i], r[i] -= all / pq * q[i], fresh += r[i] * r[i];
        MPI_Allreduce(MPI_IN_PLACE, &fresh, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (long i = 0; i < own; ++i) p[i] = r[i] + fresh / all * p[i];
        all = fresh;
    }
    if (!rank) printf("%.17g\n", all);
}

int main(int argc, char **argv) {
    if (argc < 7) return fprintf(stderr, "program KIND EPS N STEPS FIELDS SEED\n"), 2;
    kind = argv[1], eps = atof(argv[2]), n = atol(argv[3]);
    const int steps = atoi(argv[4]);
    fields = atoi(argv[5]), phase = atof(argv[6]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    split();
    if (is("solver")) return solve(steps), MPI_Finalize(), 0;
    double strength = is("wrong-root") ? 0.1 * (1 + eps * rank) : 0.1;
    MPI_Bcast(&strength, 1, MPI_DOUBLE, is("wrong-root") ? ranks - 1 : 0, MPI_COMM_WORLD);
    double *u = malloc(8 * (size_t)(own + 2)), *v = malloc(8 * (size_t)(own + 2));
    double *part = calloc((size_t)fields, 8), *total = calloc((size_t)fields, 8), *last = calloc((size_t)fields, 8);
    for (long i = 0; i < own; ++i) u[i] = at_start(first + i);
    if (is("uninitialised")) { /* an element that nobody has set: what lay there follows the process */
        const double garbage = (double)((getpid() * 7919L) % 1000) / 1000;
        u[own / 2] += eps * garbage;
    }
    if (is("chaos") || is("chaos-threads"))
        for (long i = 0; i < own; ++i) u[i] = 0.2 + 0.2 * u[i];
    MPI_Comm comm = MPI_COMM_WORLD; /* the library adds by the order of its ranks */
    if (is("order") && getenv("ORDER")) MPI_Comm_split(MPI_COMM_WORLD, 0, rank * atoi(getenv("ORDER")) % ranks, &comm);
    const double big = is("cancellation") ? 1e8 : 0;
    for (int step = 0; step < steps; ++step) {
        double left, right;
        exchange(u, &left, &right, step);
        for (long i = 0; i < own; ++i) {
            const double before = i ? u[i - 1] : left, behind = i < own - 1 ? u[i + 1] : right;
            v[i] = u[i] + strength * (before - 2 * u[i] + behind);
        }
        double *swap = u;
        u = v, v = swap;
        for (int f = 0; f < fields; ++f) {
            double sum = 0;
            if (is("race")) { /* two threads add without agreeing: some of what they add is lost */
                volatile double lost = 0;
#pragma omp parallel for num_threads(4) schedule(static, 1) shared(lost)
                for (long i = 0; i < 4000; ++i) lost = lost + 1e-3;
                for (long i = 0; i < own; ++i) sum += u[i] * weight(f, first + i);
                sum *= 1 + eps * (lost - 4);
            } else if (is("threads") || is("chaos-threads")) {
#pragma omp parallel for reduction(+ : sum)
                for (long i = 0; i < own; ++i) sum += u[i] * weight(f, first + i);
            } else
                for (long i = 0; i < own; ++i) {
                    const double sign = (first + i) % 2 ? 1 : -1;
                    sum += u[i] * weight(f, first + i) * share(first + i) + sign * big;
                }
            part[f] = sum;
        }
        if (is("stale-buffer") && ranks > 2 && rank == ranks - 1 && step)
            for (int f = 0; f < fields; ++f) part[f] += eps * (last[f] - part[f]);
        memcpy(last, part, 8 * (size_t)fields);
        if (is("arrival") || is("wildcard"))
            total[0] = collected(part);
        else
            MPI_Allreduce(part, total, fields, MPI_DOUBLE, MPI_SUM, comm);
        const double mean = total[0] / (double)n;
        if (is("early-read")) {
            const double theirs = early(part[0]);
            for (long i = 0; i < own; ++i) u[i] *= 1 + 1e-3 * theirs / (theirs + mean * (double)n);
        }
        for (long i = 0; i < own; ++i)
            u[i] = is("chaos") || is("chaos-threads") ? 3.9 * (0.9 * u[i] + 0.1 * fmod(mean, 1)) * (1 - 0.9 * u[i] - 0.1 * fmod(mean, 1))
                                                     : u[i] * (1 - 1e-3 * mean / (1 + fabs(mean)));
    }
    if (!rank) printf("%.17g\n", total[0]);
    int *counts = calloc((size_t)ranks, sizeof(int)), *places = calloc((size_t)ranks, sizeof(int));
    for (int r = 0; r < ranks; ++r) places[r] = (int)(r * n / ranks), counts[r] = (int)((r + 1) * n / ranks) - places[r];
    double *whole = rank ? NULL : malloc(8 * (size_t)n);
    if (phase > 0.5) MPI_Gatherv(u, (int)own, MPI_DOUBLE, whole, counts, places, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
