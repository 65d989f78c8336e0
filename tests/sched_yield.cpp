// Ranks of MPICH that wait look again and again, and give their core away between two looks, which costs nearly as much
// as working where there are more ranks than cores. Preloaded, this lets them sleep instead (tests/launch.py). Those of
// Open MPI give it away at every look (mpi_yield_when_idle), and took as long with sleep as without.

#include <cstdlib>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern "C" int sched_yield() {
    static const bool open_mpi = std::getenv("OMPI_COMM_WORLD_RANK");
    if (open_mpi) {
        return static_cast<int>(syscall(SYS_sched_yield));
    }
    const timespec moment{0, 1000};  // nanoseconds; the kernel adds some 50,000
    return nanosleep(&moment, nullptr);
}
