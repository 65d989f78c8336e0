/* Preloaded into every process of a command by `fpna cpus`: at its end a process asks the libraries that it loaded which
   code they chose, and writes the answers to a file of its own, a line each: KIND NAME VALUE, separated by tabs. The kind of a choice is
   `chose LAYER`.

   The answers come from the end of the process, since programs load libraries late and set variables themselves. They
   are written in `exit`, `_exit` and after `main` returns, before any library is unloaded. A program that is linked
   statically, or that a signal ends, writes none; a note by the process that starts it, HOST-PID.started with its name,
   shows that it lacks. With FPNA_NOT_ASKED a process writes no more than that it ended. Nothing else of the program
   changes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

/* The functions of libm and of libmvec of which the C library has several versions. Their places show which versions it chose. */
static const char *const FUNCTIONS[] = {"sin",  "cos",  "tan",  "sincos", "atan", "atan2", "exp",  "exp2",  "log",  "log2",
                                        "pow",  "expm1", "log1p", "sinh", "tanh", "sinf",  "cosf", "sincosf", "expf",
                                        "exp2f", "logf", "log2f", "powf", "fma",  "rint",  NULL};

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static int begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static void *open_loaded(const char *path) { return dlopen(path, RTLD_LAZY | RTLD_NOLOAD); }

static const char *const OF_VECTORS[] = {
    "_ZGVbN2v_sin",  "_ZGVbN2v_cos",  "_ZGVbN2v_exp",  "_ZGVbN2v_log",  "_ZGVbN2vv_pow",  "_ZGVbN4v_sinf", "_ZGVbN4v_expf",
    "_ZGVcN4v_sin",  "_ZGVcN4v_cos",  "_ZGVcN4v_exp",  "_ZGVcN4v_log",  "_ZGVcN4vv_pow",  "_ZGVdN4v_sin",  "_ZGVdN4v_cos",
    "_ZGVdN4v_exp",  "_ZGVdN4v_log",  "_ZGVdN4vv_pow", "_ZGVdN8v_sinf", "_ZGVdN8v_expf",  "_ZGVeN8v_sin",  "_ZGVeN8v_cos",
    "_ZGVeN8v_exp",  "_ZGVeN8v_log",  "_ZGVeN8vv_pow", "_ZGVeN16v_sinf", "_ZGVeN16v_expf", NULL};

/* The places of those of `functions` that the library has, as offsets in it. */
static void ask_places(FILE *out, const char *layer, const char *path, uintptr_t base, const char *const *functions) {
  void *library = open_loaded(path);
  if (!library) return;
  fprintf(out, "chose %s\t%s\t", layer, path);
  for (int i = 0; functions[i]; i++) {
    void *found = dlsym(library, functions[i]);
    if (found) fprintf(out, "%s:%lx ", functions[i], (unsigned long)((uintptr_t)found - base));
  }
  fputc('\n', out);
}

/* OpenBLAS, under any file name, such as libblas.so.3. A library also shows the functions of those that it needs. */
static void ask_openblas(FILE *out, const char *path, uintptr_t base) {
  static const char *const names[] = {"openblas_get_corename", "openblas_get_corename64_", "scipy_openblas_get_corename",
                                      "scipy_openblas_get_corename64_", NULL};
  void *library = open_loaded(path);
  if (!library) return;
  for (int i = 0; names[i]; i++) {
    char *(*core)(void) = (char *(*)(void))dlsym(library, names[i]);
    Dl_info place;
    if (core && dladdr((void *)core, &place) && (uintptr_t)place.dli_fbase == base)
      fprintf(out, "chose OpenBLAS\t%s\t%s\n", path, core());
  }
}

static void ask_blis(FILE *out, const char *path) {
  void *library = open_loaded(path);
  int (*id)(void) = library ? (int (*)(void))dlsym(library, "bli_arch_query_id") : NULL;
  char *(*text)(int) = library ? (char *(*)(int))dlsym(library, "bli_arch_string") : NULL;
  if (id && text) fprintf(out, "chose BLIS\t%s\t%s\n", path, text(id()));
}

/* MKL, also where it is linked into another library, as into torch's. */
static void ask_mkl(FILE *out, const char *path) {
  void *library = open_loaded(path);
  int (*branch)(int) = library ? (int (*)(int))dlsym(library, "mkl_serv_cbwr_get") : NULL;
  int (*cpu)(void) = library ? (int (*)(void))dlsym(library, "mkl_serv_cpu_detect") : NULL;
  int (*vml)(void) = library ? (int (*)(void))dlsym(library, "mkl_serv_vml_cpu_detect") : NULL;
  if (!branch || !cpu) return;
  fprintf(out, "chose MKL\t%s\tbranch %d, code %d, vector functions %d\n", path, branch(1), cpu(), vml ? vml() : -1);
}

/* `std::string at::get_cpu_capability()`: its result is a structure in memory that begins with pointer and length. */
struct text { char *begin; size_t length; char rest[16]; };

static void ask_aten(FILE *out, const char *path) {
  void *library = open_loaded(path);
  struct text (*capability)(void) =
      library ? (struct text(*)(void))dlsym(library, "_ZN2at18get_cpu_capabilityB5cxx11Ev") : NULL;
  if (!capability) return;
  struct text found = capability();
  fprintf(out, "chose ATen\t%s\t%.*s\n", path, (int)found.length, found.begin);
}

static int ask(struct dl_phdr_info *info, size_t size, void *file) {
  FILE *out = file;
  const char *path = info->dlpi_name, *name = name_of(path);
  (void)size;
  if (!*path || begins(name, "linux-vdso")) return 0;
  fprintf(out, "loaded\t%s\t\n", path);
  if (begins(name, "libm.so") || begins(name, "libm-")) ask_places(out, "libm", path, info->dlpi_addr, FUNCTIONS);
  if (begins(name, "libmvec")) ask_places(out, "libmvec", path, info->dlpi_addr, OF_VECTORS);
  ask_openblas(out, path, info->dlpi_addr);
  if (begins(name, "libblis")) ask_blis(out, path);
  if (begins(name, "libtorch_cpu")) ask_aten(out, path);
  if (begins(name, "libtorch_cpu") || begins(name, "libmkl_core") || begins(name, "libmkl_rt")) ask_mkl(out, path);
  return 0;
}

/* The file of a process; 0 if nobody asks. Several nodes may write into one folder. */
static int file_of(char *path, size_t size, pid_t process, const char *suffix) {
  const char *folder = getenv("FPNA_ASKED");
  char host[256] = "";
  if (!folder) return 0;
  gethostname(host, sizeof host - 1);
  return snprintf(path, size, "%s/%s-%ld%s", folder, host, (long)process, suffix) < (int)size;
}

static void answer(void) {
  static int answered;
  char path[4096], program[4096];
  if (__atomic_exchange_n(&answered, 1, __ATOMIC_SEQ_CST) || !file_of(path, sizeof path, getpid(), "")) return;
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) return;
  program[length] = 0;
  FILE *out = fopen(path, "we");
  if (!out) return;
  const char *names = getenv("FPNA_ASKED_NAMES");
  if (getenv("FPNA_NOT_ASKED")) {
    fprintf(out, "end\t\t\n");
    fclose(out);
    return;
  }
  fprintf(out, "program\t%s\t\n", program);
  char *copy = strdup(names ? names : ""), *rest = NULL;
  for (char *each = strtok_r(copy, ":", &rest); each; each = strtok_r(NULL, ":", &rest))
    if (getenv(each)) fprintf(out, "variable\t%s\t%s\n", each, getenv(each));
  free(copy);
  dl_iterate_phdr(ask, out);
  fprintf(out, "end\t\t\n");
  fclose(out);
}

EXPORTED void exit(int code) {
  answer();
  void (*end)(int) = (void (*)(int))dlsym(RTLD_NEXT, "exit");
  end(code);
  abort(); /* never reached */
}

EXPORTED void _exit(int code) {
  answer();
  void (*end)(int) = (void (*)(int))dlsym(RTLD_NEXT, "_exit");
  end(code);
  abort();
}

/* Notes that `process` becomes `program`. Also called between vfork and exec, so without memory of the C library. */
static void note(pid_t process, const char *program) {
  char path[4096];
  if (getenv("FPNA_NOT_ASKED") || !file_of(path, sizeof path, process, ".started")) return;
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (write(file, program, strlen(program)) < 0) unlink(path);
  close(file);
}

static int failed(int result) {
  int error = errno;
  char path[4096];
  if (file_of(path, sizeof path, getpid(), ".started")) unlink(path);
  errno = error;
  return result;
}

EXPORTED int execve(const char *path, char *const words[], char *const environment[]) {
  note(getpid(), path);
  return failed(((int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execve"))(path, words, environment));
}

EXPORTED int execv(const char *path, char *const words[]) {
  note(getpid(), path);
  return failed(((int (*)(const char *, char *const[]))dlsym(RTLD_NEXT, "execv"))(path, words));
}

EXPORTED int execvp(const char *path, char *const words[]) {
  note(getpid(), path);
  return failed(((int (*)(const char *, char *const[]))dlsym(RTLD_NEXT, "execvp"))(path, words));
}

EXPORTED int execvpe(const char *path, char *const words[], char *const environment[]) {
  note(getpid(), path);
  return failed(((int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execvpe"))(path, words, environment));
}

typedef int (*spawn_type)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                          char *const[], char *const[]);

static int spawned(const char *name, pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
                   const posix_spawnattr_t *attributes, char *const words[], char *const environment[]) {
  pid_t own = 0;
  int error = ((spawn_type)dlsym(RTLD_NEXT, name))(&own, path, actions, attributes, words, environment);
  if (!error) note(own, path);
  if (process) *process = own;
  return error;
}

EXPORTED int posix_spawn(pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
                         const posix_spawnattr_t *attributes, char *const words[], char *const environment[]) {
  return spawned("posix_spawn", process, path, actions, attributes, words, environment);
}

EXPORTED int posix_spawnp(pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const words[], char *const environment[]) {
  return spawned("posix_spawnp", process, path, actions, attributes, words, environment);
}

typedef int (*main_type)(int, char **, char **);
static main_type own_main;

static int asked_main(int count, char **words, char **environment) {
  int code = own_main(count, words, environment);
  answer();
  return code;
}

EXPORTED int __libc_start_main(main_type program, int count, char **words, void (*begin)(void), void (*end)(void),
                               void (*unload)(void), void *stack) {
  int (*start)(main_type, int, char **, void (*)(void), void (*)(void), void (*)(void), void *) =
      (int (*)(main_type, int, char **, void (*)(void), void (*)(void), void (*)(void), void *))dlsym(RTLD_NEXT,
                                                                                                      "__libc_start_main");
  own_main = program;
  return start(asked_main, count, words, begin, end, unload, stack);
}
