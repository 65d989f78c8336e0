// MPI functions that are counted and not recorded: each passes its arguments to the function of the MPI library.
//
// building.py writes counted.inc at compile time from the library's mpi.h: COUNTED(NUMBER, NAME) for every function that is
// not ignored. Functions in calls.cpp and fortran.cpp replace these, which are weak. This file does not include mpi.h, which
// declares other types: all arguments of these functions are integers and pointers, which fill whole registers and stack
// slots.
//
// With FPNA_STATIC these files become an object that a program links before a static MPI library. Its functions are then the
// first ones that the linker finds, and the library's are their PMPI forms. The Fortran functions of MPICH call those of C.
#ifndef FPNA_STATIC
#include "next.hpp"
#endif

namespace fpna {
void *begin_counted(int number);  // start.hpp
void end_counted(void *begun);
const char *counted_names();
}  // namespace fpna

namespace {

using Word = void *;
#define WORDS Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, Word l, Word m, \
              Word n, Word o, Word p
#define PASSED a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p

using Function = Word (*)(WORDS);

Word passed_on(int number, Function real, WORDS) {
    void *begun = fpna::begin_counted(number);
    const Word code = real(PASSED);
    fpna::end_counted(begun);
    return code;
}

}  // namespace

#ifdef FPNA_STATIC
#define COUNTED(NUMBER, NAME)                                               \
    extern "C" Word P##NAME(WORDS);                                         \
    extern "C" __attribute__((weak)) Word NAME(WORDS) { return passed_on(NUMBER, P##NAME, PASSED); }
#define COUNTED_IN_FORTRAN(NUMBER, LOWER)
#else
#define COUNTED_AS(NUMBER, NAME, REAL)                                      \
    extern "C" __attribute__((weak)) Word NAME(WORDS) {                     \
        static const Function real = fpna::next<Function>(REAL);            \
        return passed_on(NUMBER, real, PASSED);                             \
    }
#define COUNTED(NUMBER, NAME) COUNTED_AS(NUMBER, NAME, "P" #NAME)
#define COUNTED_IN_FORTRAN(NUMBER, LOWER) COUNTED_AS(NUMBER, LOWER##_, #LOWER "_") COUNTED_AS(NUMBER, LOWER##_f08_, #LOWER "_f08_")
#endif

#include "counted.inc"

// Their names, as a JSON list.
const char *fpna::counted_names() { return COUNTED_NAMES; }
