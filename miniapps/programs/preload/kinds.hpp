// Ranks of several kinds: their processors, C libraries or settings differ, so libraries may compute other bits from the
// same data. All ranks compare a hash when the recording begins; if hashes differ, rank 0 gets the entries of all.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <dlfcn.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include "include/processor.hpp"
#include "places.hpp"

extern char **environ;

namespace fpna {

using Entries = std::map<std::string, std::string>;  // by the keys of miniapps/system/kinds.py

// The preloaded libraries without this recorder, whose path differs between nodes with other compilers.
inline std::string without_recorder(const std::string &preloaded) {
    std::istringstream words(preloaded);
    std::string word, others;
    while (words >> word)
        if (word.find("/fpna/observe-") == std::string::npos) others += (others.empty() ? "" : " ") + word;
    return others;
}

// The entries of this process. FPNA_SETTINGS has the names of variables that count; one that ends in _ stands for all that
// begin with it.
inline Entries own_entries() {
    Entries own;
    const Processor processor = this_processor();
    own["processor.vendor"] = processor.vendor;
    own["processor.family"] = processor.family;
    own["processor.flags"] = processor.flags;
#if defined(__GLIBC__)
    own["arithmetic.libc"] = std::string("glibc ") + gnu_get_libc_version();
#endif
    if (void *core = dlsym(RTLD_DEFAULT, "openblas_get_corename"))
        own["arithmetic.openblas_numpy"] = reinterpret_cast<char *(*)()>(core)();
    const char *names = std::getenv("FPNA_SETTINGS");
    std::istringstream words(names ? names : "");
    std::vector<std::string> counted;
    for (std::string word; words >> word;) counted.push_back(word);
    for (char **variable = environ; *variable; ++variable) {
        const std::string entry = *variable;
        const std::size_t equals = entry.find('=');
        if (equals == std::string::npos) continue;
        const std::string name = entry.substr(0, equals), text = entry.substr(equals + 1);
        for (const std::string &known : counted) {
            if (name != known && (known.back() != '_' || name.rfind(known, 0) != 0)) continue;
            const std::string value = name == "LD_PRELOAD" ? without_recorder(text) : text;
            if (name != "LD_PRELOAD" || !value.empty()) own["variables." + name] = value;
        }
    }
    return own;
}

inline std::string as_json(const Entries &entries) {
    std::string text;
    for (const auto &[key, value] : entries) text += (text.empty() ? "{" : ", ") + quoted(key.c_str()) + ": " + quoted(value.c_str());
    return text.empty() ? "{}" : text + "}";
}

// The JSON of the entries of all ranks, on rank 0 and if not all are equal; else empty. Collective.
inline std::vector<std::string> differing_ranks(int rank, int size) {
    const std::string own = as_json(own_entries());
    const std::uint64_t hash = XXH3_64bits(own.data(), own.size());
    const std::uint64_t both[] = {hash, ~hash};
    std::uint64_t most[2] = {};
    PMPI_Allreduce(both, most, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (most[0] == ~most[1]) return {};  // the largest of ~x is the smallest x
    const auto count = static_cast<std::size_t>(size);
    const int length = static_cast<int>(own.size());
    std::vector<int> lengths, starts;
    lengths.resize(count);
    PMPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
    int end = 0;
    for (int each : lengths) {
        starts.push_back(end);
        end += each;
    }
    std::string all(static_cast<std::size_t>(end), ' ');  // empty but on rank 0
    PMPI_Gatherv(own.data(), length, MPI_CHAR, &all[0], lengths.data(), starts.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
    std::vector<std::string> found;
    for (std::size_t i = 0; rank == 0 && i < count; ++i)
        found.push_back(all.substr(static_cast<std::size_t>(starts[i]), static_cast<std::size_t>(lengths[i])));
    return found;
}

// Lines of text, one for each kind: `{"kind": entries, "ranks": [0, 1]}`. Rank 0 also prints which ranks differ, and leaves
// layers and settings to `fpna run`. Collective.
inline std::vector<std::string> compare_kinds(int rank, int size) {
    const std::vector<std::string> ranks = differing_ranks(rank, size);
    std::vector<std::string> kinds, members;
    std::map<std::string, std::size_t> number;
    std::string told;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const auto [place, fresh] = number.emplace(ranks[i], kinds.size());
        if (fresh) {
            kinds.push_back(ranks[i]);
            members.emplace_back();
        }
        members[place->second] += (fresh ? "" : ", ") + std::to_string(i);
    }
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        constexpr std::size_t SHOWN = 60;
        const std::string some = members[i].size() > SHOWN ? members[i].substr(0, members[i].rfind(',', SHOWN)) + ", ..." : members[i];
        if (i < 4) told += (told.empty() ? "" : " | ") + some;
        kinds[i] = "{\"kind\": " + kinds[i] + ", \"ranks\": [" + members[i] + "]}";
    }
    if (!kinds.empty() && !std::getenv("FPNA_OBSERVE_QUIET"))
        std::fprintf(stderr,
                     "fpna run: ranks of %zu kinds (%s): processors, C libraries or settings differ, so equal data may get other "
                     "bits; at its end the run names them, and settings that make the ranks equal\n",
                     kinds.size(), told.c_str());
    return kinds;
}

}  // namespace fpna
