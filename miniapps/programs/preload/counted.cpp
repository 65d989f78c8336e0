// MPI functions that are counted and not recorded: each passes its arguments to the function of the MPI library.
//
// building.py writes counted.inc at compile time from the library's mpi.h: COUNTED(NUMBER, NAME) for every function that is
// not ignored. Functions in calls.cpp and fortran.cpp replace these, which are weak. This file does not include mpi.h, which
// declares other types: all arguments of these functions are integers and pointers, which fill whole registers and stack
// slots.
#include "next.hpp"

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

#define COUNTED_AS(NUMBER, NAME, REAL)                                      \
    extern "C" __attribute__((weak)) Word NAME(WORDS) {                     \
        static const Function real = fpna::next<Function>(REAL);            \
        return passed_on(NUMBER, real, PASSED);                             \
    }
#define COUNTED(NUMBER, NAME) COUNTED_AS(NUMBER, NAME, "P" #NAME)
#define COUNTED_IN_FORTRAN(NUMBER, LOWER) COUNTED_AS(NUMBER, LOWER##_, #LOWER "_") COUNTED_AS(NUMBER, LOWER##_f08_, #LOWER "_f08_")

#include "counted.inc"

// Their names, as a JSON list.
const char *fpna::counted_names() { return COUNTED_NAMES; }
