// Calls that write and read files: which file, which bytes of it, and their hash.
//
// The offset of a call is that of its first byte, by the view of the file. A call with a shared file pointer has none: ranks
// move the pointer in the order in which they come.
#pragma once

#include <climits>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <mpi.h>

#include "requests.hpp"

namespace fpna {

struct Opened {
    Communicator as;         // its name among the files that are open, and its ranks
    int number;              // of the path
    bool has_places = true;  // false for a file that is only read or written in sequence
    MPI_Count element = 0;   // bytes of an element of its view, if the view may have gaps; else 0
};
inline std::mutex files;  // guards `opened`
inline std::unordered_map<std::uint64_t, Opened> opened;

// The number of a path; writes a new one into the texts.
inline int number_of_path(const std::string &whole) {
    const std::string path = whole.substr(0, PATH_MAX);
    static std::unordered_map<std::string, int> numbers;
    const std::lock_guard<std::mutex> held(lock);
    const auto [place, fresh] = numbers.try_emplace(path, int(numbers.size()) + 1);
    if (fresh) texts.line("{\"opened\": " + std::to_string(place->second) + ", \"name\": " + quoted(path.c_str()) + "}");
    return place->second;
}

// Opens a file by `run`, which returns its code; `file()`: the file.
template <typename Run, typename File>
int opening(MPI_Comm comm, const std::string &path, int mode, Run run, File file) {
    if (!on(comm)) return run();
    const Inside from_here;
    Making making(comm, "file");
    const int code = run();
    if (code != MPI_SUCCESS) return making.is(MPI_COMM_NULL), code;
    const Opened fresh{making.object(comm), number_of_path(path), !(mode & MPI_MODE_SEQUENTIAL)};
    const std::lock_guard<std::mutex> alone(files);
    opened.insert_or_assign(number_of(file()), fresh);
    return code;
}

// The program closes a file.
inline void closing(MPI_File file) {
    std::optional<Opened> gone;
    {
        const std::lock_guard<std::mutex> alone(files);
        if (const auto place = opened.find(number_of(file)); place != opened.end()) {
            gone = std::move(place->second);
            opened.erase(place);
        }
    }
    const std::lock_guard<std::mutex> alone(communicators);
    if (gone) free_place(gone->as);
}

// The program has set the view of a file: `pattern` selects its bytes.
inline void viewing(MPI_File file, MPI_Datatype element, MPI_Datatype pattern) {
    const Inside from_here;
    MPI_Aint size = 0;
    MPI_Count bytes = 0;
    if (!dense(pattern, size)) PMPI_Type_size_x(element, &bytes);
    const std::lock_guard<std::mutex> alone(files);
    if (const auto place = opened.find(number_of(file)); place != opened.end()) place->second.element = bytes;
}

// A file as the recorder knows it.
inline Opened known_file(MPI_File file) {
    {
        const std::lock_guard<std::mutex> alone(files);
        if (const auto place = opened.find(number_of(file)); place != opened.end()) return place->second;
    }
    static const int unknown = number_of_name("other file");  // opened before the recording
    return {{unknown, 0, 0, false, "other file"}, 0, false};
}

enum class Where { POINTER, EXPLICIT, SHARED };

// A call of this kind on an open file. `offset`: with Where::EXPLICIT, in elementary types of the view.
class Transfer {
  public:
    Transfer(Kind kind, MPI_File file, Where where, MPI_Offset offset, const void *data, MPI_Aint count, MPI_Datatype type)
        : of_(known_file(file)), shape_{kind, MPI_COMM_NULL, count, type, {}, {}} {
        (reads(kind) ? shape_.out : shape_.in) = {{data, count, type}};
        shape_.peer = of_.number;
        if (!of_.has_places || where == Where::SHARED) return;
        const Inside from_here;
        if (where == Where::POINTER && PMPI_File_get_position(file, &offset) != MPI_SUCCESS) return;
        MPI_Offset byte = 0;
        if (offset < 0 || PMPI_File_get_byte_offset(file, offset, &byte) != MPI_SUCCESS) return;
        shape_.at = byte;
        if (of_.element == 0 || count <= 0 || type == MPI_DATATYPE_NULL) return;
        MPI_Count size = 0;
        MPI_Offset last = 0;  // of the call's elements in the file: a view never goes back
        PMPI_Type_size_x(type, &size);
        const MPI_Count bytes = size * count, elements = bytes / of_.element;
        shape_.scattered = elements > 0 && (PMPI_File_get_byte_offset(file, offset + elements - 1, &last) != MPI_SUCCESS ||
                                            last + of_.element - byte != bytes);
    }

    // Runs and records it; `status()`: its status.
    template <typename Run, typename Status>
    int blocking(std::uint64_t site, Run run, Status status) const {
        return observed_with(shape_, site, of_.as, run, status);
    }

    template <typename Run, typename Request>
    int nonblocking(std::uint64_t site, Run run, Request request) const {
        return started_on(shape_, site, of_.as, run, request);
    }

    template <typename Run>
    int split(std::uint64_t site, MPI_File file, Run run) const;

  private:
    Opened of_;
    Shape shape_;
};

// Calls that have begun and wait for their `_end`, by file; `lock` guards them.
inline std::unordered_map<std::uint64_t, Pending> splits;

template <typename Run>
int Transfer::split(std::uint64_t site, MPI_File file, Run run) const {
    const Inside from_here;
    Record record = begun(shape_, site, of_.as);
    record.flags |= SPLIT;
    const int code = run();
    const std::lock_guard<std::mutex> held(lock);
    if (code != MPI_SUCCESS) return finish(record, nullptr, shape_.out, true, now()), code;
    Pending fresh{record, shape_.out};
    hold(fresh.out);
    splits.insert_or_assign(number_of(file), std::move(fresh));
    return code;
}

// The end of a split call.
template <typename Run, typename Status>
int split_end(MPI_File file, Run run, Status status) {
    const Inside from_here;
    const int code = run();
    const std::int64_t end = now();
    const MPI_Status *got = code == MPI_SUCCESS ? status() : nullptr;
    const std::lock_guard<std::mutex> held(lock);
    const auto place = splits.find(number_of(file));
    if (place == splits.end()) return code;
    finish(place->second.record, got, place->second.out, code != MPI_SUCCESS, end);
    release(place->second.out);
    splits.erase(place);
    return code;
}

// At the end: commits split calls that the program never ended.
inline void give_up_splits() {
    for (const auto &[file, unfinished] : splits) commit(unfinished.record);
    splits.clear();
}

}  // namespace fpna
