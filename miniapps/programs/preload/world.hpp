// Ends a program whose launcher, MPI library and observer do not belong together, before it computes anything: each of
// its processes would be alone, and the results be those of one rank.
#pragma once

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <mpi.h>

namespace fpna {

// Tells `fpna run`, by the pipe that it left open, which file this rank writes.
inline void tell_launcher(const std::string &path) {
    const char *number = std::getenv("FPNA_OBSERVE_FD");
    if (!number) return;
    const int pipe = std::atoi(number);
    if (write(pipe, path.data(), path.size()) < 0) std::fprintf(stderr, "fpna run: the launcher is gone\n");
    close(pipe);
    unsetenv("FPNA_OBSERVE_FD");
}

// What the launcher says, as `fpna run` passes it on: its name, the number of processes that it started, and which this is.
struct Launcher {
    std::string name = text("FPNA_LAUNCHER");
    int size = std::atoi(text("FPNA_LAUNCHED").c_str()), rank = std::atoi(text("FPNA_LAUNCHED_RANK").c_str());
    static std::string text(const char *variable) {
        const char *value = std::getenv(variable);
        return value ? value : "";
    }
};

// Says why, by the first process alone, and ends all with 2.
[[noreturn]] inline void refuse_launch(const Launcher &launcher, const std::string &why) {
    if (launcher.rank == 0)
        std::fprintf(stderr, "fpna run: %s\n", why.c_str());
    else
        sleep(1);  // the launcher may end the job when the first process ends: rank 0 speaks first
    tell_launcher("refused");
    std::fflush(nullptr);
    std::_Exit(2);
}

// The first line of what the MPI library says that it is.
inline std::string library_name() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    PMPI_Get_library_version(text, &length);
    std::string name = text;
    name.resize(std::min(name.find_first_of("\n,"), name.size()));
    const std::string label = "MPICH Version:";
    if (name.rfind(label, 0) == 0) name = "MPICH " + name.substr(std::min(name.find_first_not_of(" \t", label.size()), name.size()));
    return name;
}

// The name and the interface of an MPI library, `libmpi.so.12`, by the path of its file; empty for any other file.
inline std::string interface_of(const char *path) {
    char real[PATH_MAX];
    if (realpath(path, real)) path = real;
    const char *slash = std::strrchr(path, '/');
    std::string name = slash ? slash + 1 : path;
    for (const char *known : {"libmpi.so.", "libmpich.so.", "libmpi_abi.so."})
        if (name.rfind(known, 0) == 0) {
            const std::size_t begin = std::strlen(known), end = name.find('.', begin);
            name.resize(end == std::string::npos ? name.size() : end);
            return name.rfind("libmpich", 0) == 0 ? "libmpi" + name.substr(8) : name;  // two names of one interface
        }
    return "";
}

struct Loaded {
    std::string own, other;  // paths
};

inline int look_at(dl_phdr_info *info, std::size_t, void *data) {
    auto &loaded = *static_cast<Loaded *>(data);
    const std::string interface = interface_of(info->dlpi_name);
    if (!interface.empty() && interface != interface_of(loaded.own.c_str())) loaded.other = info->dlpi_name;
    return 0;
}

// Before MPI begins, which may fail without a word of ours.
inline void require_launch() {
    if (!std::getenv("FPNA_OBSERVE")) return;
    const Launcher launcher;
    Loaded loaded;
    Dl_info info{};
    if (dladdr(reinterpret_cast<void *>(&PMPI_Init), &info) && info.dli_fname) loaded.own = info.dli_fname;
    if (!interface_of(loaded.own.c_str()).empty()) dl_iterate_phdr(look_at, &loaded);
    if (!loaded.other.empty())
        refuse_launch(launcher, "two MPI libraries are in one process, that of the program and that for which the library was "
                                "built that observes it: " + loaded.own + " and " + loaded.other +
                                    "; name the C++ compiler of the program's MPI with --mpicxx");
    const std::string library = library_name();
    if (launcher.name == "Open MPI" && launcher.size && library.find("MPICH") != std::string::npos)
        refuse_launch(launcher, "the launcher (Open MPI) started " + std::to_string(launcher.size) +
                                    " processes, but it does not belong to the MPI library of the program, " + library +
                                    ": use the mpirun of that library, or a program that was built with the launcher's");
}

// After it: whether processes that were started together know each other.
inline void require_ranks(int size) {
    const Launcher launcher;
    MPI_Comm parent = MPI_COMM_NULL;
    if (size > 1 || launcher.size < 2 || (PMPI_Comm_get_parent(&parent), parent != MPI_COMM_NULL)) return;
    refuse_launch(launcher, "the launcher (" + launcher.name + ") started " + std::to_string(launcher.size) +
                                " processes, but it does not belong to the MPI library of the program, " + library_name() +
                                ", in which each process is alone: use the mpirun of that library, or a program (with "
                                "--mpicxx, if need be) that was built with the launcher's; with srun, choose --mpi");
}

}  // namespace fpna
