// Finds the Python lines of a call, through public functions of the interpreter, which are looked up in the process: the
// build does not need Python, and programs without Python pay nothing.
//
// mpi4py releases the interpreter's lock before it calls MPI. This code takes it again to read the lines, for about 0.2 us,
// if it is free; mpi4py takes it after the call anyway. For other callers without the lock it reads nothing.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <dlfcn.h>

namespace fpna {

inline std::string quoted(const char *text);

class Interpreter {
  public:
    static constexpr int LINES = 4;         // at most, without lines of mpi4py
    static constexpr int ROOM = LINES + 1;  // and the innermost line, also one of mpi4py

    // Whether the process has the interpreter's functions; looks again as long as it does not.
    bool there() {
        if (line_) return true;
        if (!(initialized_ = find<int()>("Py_IsInitialized"))) return false;
        if (!(finalizing_ = find<int()>("Py_IsFinalizing"))) finalizing_ = find<int()>("_Py_IsFinalizing");
        own_ = find<void *()>("PyGILState_GetThisThreadState");
        check_ = find<int()>("PyGILState_Check");
        ensure_ = find<int()>("PyGILState_Ensure");
        release_ = find<void(int)>("PyGILState_Release");
        frame_ = find<void *()>("PyEval_GetFrame");
        code_ = find<void *(void *)>("PyFrame_GetCode");
        back_ = find<void *(void *)>("PyFrame_GetBack");
        instruction_ = find<int(void *)>("PyFrame_GetLasti");  // from 3.11 on
        attribute_ = find<void *(void *, const char *)>("PyObject_GetAttrString");
        text_ = find<const char *(void *)>("PyUnicode_AsUTF8");
        fetch_ = find<void(void **, void **, void **)>("PyErr_Fetch");
        restore_ = find<void(void *, void *, void *)>("PyErr_Restore");
        keep_ = find<void(void *)>("Py_IncRef");
        drop_ = find<void(void *)>("Py_DecRef");
        if (own_ && check_ && ensure_ && release_ && frame_ && code_ && back_ && attribute_ && text_ && fetch_ && restore_ &&
            keep_ && drop_)
            line_ = find<int(void *)>("PyFrame_GetLineNumber");
        return line_;
    }

    // Writes the numbers of the lines of this thread, innermost first, at most ROOM; returns how many. `take`: may take the
    // lock.
    int lines(std::uint64_t *numbers, bool take, std::mutex &lock) {
        if (!initialized_() || !own_()) return 0;
        const bool held = check_();
        if (!held && (!take || (finalizing_ && finalizing_()))) return 0;
        const int state = held ? 0 : ensure_();
        int count = 0, beyond = 0, looked = 0;
        void *frame = frame_();
        if (frame) keep_(frame);
        while (frame) {
            void *code = code_(frame);
            const int at = instruction_ ? instruction_(frame) : line_(frame);
            std::uint64_t number;
            bool interface;
            {
                const std::lock_guard<std::mutex> alone(lock);
                number = this->number(code, at, frame);
                interface = lines_[number].interface;
            }
            drop_(code);
            if (!interface || !looked) numbers[count++] = number;
            beyond += !interface;
            void *caller = beyond < LINES && ++looked < MOST ? back_(frame) : nullptr;
            drop_(frame);
            frame = caller;
        }
        if (!held) release_(state);
        return count;
    }

    // A line as JSON: [file, function, line].
    std::string json(std::uint64_t number) const {
        const Line &line = lines_[number];
        return "[" + quoted(line.file.c_str()) + ", " + quoted(line.function.c_str()) + ", " + std::to_string(line.line) + "]";
    }

  private:
    static constexpr int MOST = 64;  // frames looked through
    static constexpr std::size_t KEPT = 1 << 16;
    struct Line {
        std::string file, function;
        int line = 0;
        bool interface = false;
    };
    struct Key {
        void *code;
        int at;
        bool operator==(const Key &other) const { return code == other.code && at == other.at; }
    };
    struct Hash {
        std::size_t operator()(const Key &key) const {
            return (std::size_t(key.code) >> 4) * 0x9e3779b97f4a7c15u + std::size_t(key.at);
        }
    };

    template <typename Function>
    static Function *find(const char *name) {
        return reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
    }

    // Keeps each code object, so that no other gets its address; after KEPT lines, all others have one number.
    std::uint64_t number(void *code, int at, void *frame) {
        const auto [place, fresh] = numbers_.try_emplace({code, at}, lines_.size());
        if (!fresh) return place->second;
        if (lines_.size() >= KEPT) {
            numbers_.erase(place);
            if (lines_.size() == KEPT) lines_.push_back({"(too many lines to distinguish)", "", 0, false});
            return KEPT;
        }
        keep_(code);
        Line line;
        void *error[3];
        fetch_(error, error + 1, error + 2);
        line.file = attribute(code, "co_filename");
        line.function = attribute(code, "co_name");
        restore_(error[0], error[1], error[2]);
        line.line = line_(frame);
        for (const char *part : {"/mpi4py/util/", "/mpi4py/futures/", "/mpi4py/run.py", "/mpi4py/__main__.py"})
            line.interface |= line.file.find(part) != std::string::npos;
        lines_.push_back(line);
        return place->second;
    }

    std::string attribute(void *code, const char *name) {
        void *value = attribute_(code, name);
        const char *text = value ? text_(value) : nullptr;
        std::string own = text ? text : "?";
        if (value) drop_(value);
        return own;
    }

    std::unordered_map<Key, std::uint64_t, Hash> numbers_;
    std::vector<Line> lines_;
    int (*initialized_)() = nullptr, (*finalizing_)() = nullptr, (*check_)() = nullptr, (*ensure_)() = nullptr;
    void (*release_)(int) = nullptr, (*keep_)(void *) = nullptr, (*drop_)(void *) = nullptr;
    void *(*own_)() = nullptr, *(*frame_)() = nullptr, *(*code_)(void *) = nullptr, *(*back_)(void *) = nullptr;
    int (*instruction_)(void *) = nullptr, (*line_)(void *) = nullptr;
    void *(*attribute_)(void *, const char *) = nullptr;
    const char *(*text_)(void *) = nullptr;
    void (*fetch_)(void **, void **, void **) = nullptr, (*restore_)(void *, void *, void *) = nullptr;
};

}  // namespace fpna
