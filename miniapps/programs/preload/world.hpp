// Ends a program before it computes anything if its launcher, its MPI library and this library do not belong together:
// each of its processes would be alone and compute the results of one rank.
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

// Sends the path of this rank's log to `fpna run`, by the pipe that it left open.
inline void tell_launcher(const std::string &path) {
    const char *number = std::getenv("FPNA_OBSERVE_FD");
    if (!number) return;
    const int pipe = std::atoi(number);
    if (write(pipe, path.data(), path.size()) < 0) std::fprintf(stderr, "fpna run: the process that started this program has ended\n");
    close(pipe);
    unsetenv("FPNA_OBSERVE_FD");
}

// The launcher, as `fpna run` describes it: its name, the number of processes that it started, and the number of this one.
struct Launcher {
    std::string name = text("FPNA_LAUNCHER");
    int size = std::atoi(text("FPNA_LAUNCHED").c_str()), rank = std::atoi(text("FPNA_LAUNCHED_RANK").c_str());
    static std::string text(const char *variable) {
        const char *value = std::getenv(variable);
        return value ? value : "";
    }
};

// Prints the reason, in the first process only, and ends the program with exit code 2.
[[noreturn]] inline void refuse_launch(const Launcher &launcher, const std::string &why) {
    if (launcher.rank == 0)
        std::fprintf(stderr, "fpna run: %s\n", why.c_str());
    else
        sleep(1);  // rank 0 prints first: the launcher may end the job when the first process ends
    tell_launcher("refused");
    std::fflush(nullptr);
    std::_Exit(2);
}

// The name of the MPI library: the first line of its version text.
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

// Checks before MPI_Init, which may fail without a useful message.
inline void require_launch() {
    if (!std::getenv("FPNA_OBSERVE")) return;
    const Launcher launcher;
    Loaded loaded;
    Dl_info info{};
    if (dladdr(reinterpret_cast<void *>(&PMPI_Init), &info) && info.dli_fname) loaded.own = info.dli_fname;
    if (!interface_of(loaded.own.c_str()).empty()) dl_iterate_phdr(look_at, &loaded);
    if (!loaded.other.empty())
        refuse_launch(launcher, "two MPI libraries are in one process, that of the program and that of the compiler that built "
                                "the recording library: " + loaded.own + " and " + loaded.other +
                                    "; name the C++ compiler of the program's MPI with --mpicxx");
    const std::string library = library_name();
    if (launcher.name == "Open MPI" && launcher.size && library.find("MPICH") != std::string::npos)
        refuse_launch(launcher, "the launcher (Open MPI) started " + std::to_string(launcher.size) +
                                    " processes, but it does not belong to the MPI library of the program, " + library +
                                    ": use the mpirun of that library, or a program that was built with the launcher's");
}

// Checks after MPI_Init that processes that were started together are ranks of one program.
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
