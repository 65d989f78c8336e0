// The place of a call in the program: its calling functions, and in Python their lines. A place has a number; its addresses
// are written once, and miniapps/programs/places.py names it after the run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mpi.h>

#include "callers.hpp"
#include "interpreter.hpp"

// The number of the place from which the current function was called.
#define SITE fpna::place_of(reinterpret_cast<std::uint64_t>(__builtin_return_address(0)), __builtin_frame_address(0))

namespace fpna {

inline Texts texts;
inline std::mutex lock;  // guards the log and its texts

inline std::string quoted(const char *text) {
    std::string line = "\"";
    for (; *text; ++text) {
        if (*text == '"' || *text == '\\') line += '\\';
        line += static_cast<unsigned char>(*text) < 32 ? ' ' : *text;
    }
    return line + "\"";
}

class Places {
  public:
    // The number of a function as a place, by its address.
    std::uint64_t of_function(std::uint64_t address) {
        Key key;
        key.add(address + 1);  // like a return address, which follows a call
        key.functions = key.count;
        const std::lock_guard<std::mutex> alone(own_);
        const auto [place, fresh] = numbers_.try_emplace(key, numbers_.size() + 1);
        if (fresh) write(place->second, key);
        return place->second;
    }

    std::uint64_t number(std::uint64_t site, const void *frame) {
        Key key;
        bool python, take = false;
        {
            const std::lock_guard<std::mutex> alone(own_);
            int beyond = 0, looked = 0;
            Callers callers(site, frame);
            do {
                const Code &code = at(callers.place());
                if (looked == 0) take = code.mpi4py;
                if (code.last && looked) break;
                if (!code.interface || looked == 0) key.add(callers.place());
                if (!code.interface) ++beyond;
                if (!callers.next(code.rule)) break;
            } while (beyond < FUNCTIONS && ++looked < CALLERS);
            python = python_;
        }
        key.functions = key.count;
        if (python) {  // without this lock: a thread with the interpreter's lock may wait for it
            std::uint64_t lines[Interpreter::ROOM];
            const int count = interpreter_.lines(lines, take, own_);
            for (int i = 0; i < count; ++i) key.add(lines[i]);
        }
        const std::lock_guard<std::mutex> alone(own_);
        const auto [place, fresh] = numbers_.try_emplace(key, numbers_.size() + 1);
        if (fresh) write(place->second, key);
        return place->second;
    }

  private:
    static constexpr int FUNCTIONS = 6;  // of the program
    struct Key {
        std::uint64_t parts[FUNCTIONS + 1 + Interpreter::ROOM] = {};
        int count = 0, functions = 0;
        void add(std::uint64_t part) { parts[count++] = part; }
        bool operator==(const Key &other) const {
            if (count != other.count || functions != other.functions) return false;
            for (int i = 0; i < count; ++i)
                if (parts[i] != other.parts[i]) return false;
            return true;
        }
    };
    struct Hash {
        std::size_t operator()(const Key &key) const {
            std::size_t hash = std::size_t(key.functions);
            for (int i = 0; i < key.count; ++i) hash = (hash ^ key.parts[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32;
            return hash;
        }
    };
    // Properties of a return address.
    struct Code {
        Rule rule;
        bool interface = false, mpi4py = false, last = false;
    };

    const Code &at(std::uint64_t place) {
        const auto [entry, fresh] = codes_.try_emplace(place);
        if (!fresh) return entry->second;
        Code &code = entry->second;
        python_ = interpreter_.there();
        code.rule = Table::rule(place - 1);  // a return address follows its call
        Dl_info info{}, library{};
        if (!dladdr(reinterpret_cast<void *>(place - 1), &info)) return code;
        const std::string path = info.dli_fname ? info.dli_fname : "", name = path.substr(path.rfind('/') + 1);
        dladdr(reinterpret_cast<void *>(&PMPI_Allreduce), &library);
        const auto begins = [&](const char *with) { return name.rfind(with, 0) == 0; };
        code.mpi4py = path.find("/mpi4py/MPI.") != std::string::npos;
#ifdef FPNA_STATIC
        const bool of_mpi = false;  // the library is a part of the program
#else
        const bool of_mpi = info.dli_fbase == library.dli_fbase;
#endif
        code.interface = code.mpi4py || of_mpi || begins("libmpi") || begins("libpmpi") ||
                         begins("libfmpi") || begins("libboost_mpi");
        code.last = begins("libc.so") || begins("libc-") || begins("libpython") || begins("python");
        return code;
    }

    void write(std::uint64_t number, const Key &key) {
        std::string line = "{\"site\": " + std::to_string(number) + ", \"functions\": [";
        for (int i = 0; i < key.functions; ++i) line += (i ? ", " : "") + function(key.parts[i]);
        line += "], \"lines\": [";
        for (int i = key.functions; i < key.count; ++i)
            line += (i > key.functions ? ", " : "") + interpreter_.json(key.parts[i]);
        const std::lock_guard<std::mutex> held(lock);
        for (const std::string &file : files_) texts.line(file);
        files_.clear();
        texts.line(line + "]}");
    }

    // A return address as JSON, [file, address in it]; notes its file once, with the size and time that show later changes.
    std::string function(std::uint64_t place) {
        Dl_info info{};
        link_map *map = nullptr;
        if (!dladdr1(reinterpret_cast<void *>(place - 1), &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP) || !map)
            return "[\"\", 0]";  // generated at run time
        std::string path = map->l_name ? map->l_name : "";
        if (path.empty()) {
            char program[4096];
            const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
            if (length > 0) path.assign(program, std::size_t(length));
        }
        struct stat state {};
        if (noted_.insert(path).second && !stat(path.c_str(), &state))
            files_.push_back("{\"file\": " + quoted(path.c_str()) + ", \"bytes\": " + std::to_string(state.st_size) +
                             ", \"modified\": " + std::to_string(state.st_mtim.tv_sec * 1000000000 + state.st_mtim.tv_nsec) +
                             "}");
        return "[" + quoted(path.c_str()) + ", " + std::to_string(place - std::uint64_t(map->l_addr)) + "]";
    }

    std::mutex own_;
    Interpreter interpreter_;
    bool python_ = false;
    std::unordered_map<std::uint64_t, Code> codes_;
    std::unordered_map<Key, std::uint64_t, Hash> numbers_;
    std::unordered_set<std::string> noted_;
    std::vector<std::string> files_;  // to be written before a place in them
};

inline Places &every_place() {
    static auto &places = *new Places;  // never destroyed: destructors of the program may still call
    return places;
}

inline std::uint64_t place_of(std::uint64_t site, const void *frame) { return every_place().number(site, frame); }

}  // namespace fpna
