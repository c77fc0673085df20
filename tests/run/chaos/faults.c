/* Stands between a process and the C library (LD_PRELOAD) and makes one change of a folder's files fail, or kills the
 * process there. Nothing happens until `chaos_arm`.
 *
 *     point    a call that changes files below the folder: open to write, write, fsync, close, rename, link, unlink,
 *              mkdir, rmdir, truncate; numbered from 1 in the order in which they begin
 *     trace    one line for each point, written before it happens: "17 rename /folder/a -> /folder/b"
 *
 * Calls that the C library makes itself (stdio's buffers) are not seen; Python's own files are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode { COUNT, KILL, HALF, POWER, ONCE, FULL };
/* COUNT: only the trace. KILL: before the point. HALF: after half of a write, else before the point. POWER: KILL, and
 * bytes of files that were not flushed are lost. ONCE: the point fails with `error`. FULL: from the point on, all that
 * takes space fails with `error`. */

#define MOST 4096

static char folder[PATH_MAX];
static size_t folder_size;
static atomic_int armed;
static atomic_long count;
static long at;
static int mode, error, trace = -1;
static struct { ino_t number; off_t flushed; } dirty[MOST];
static int dirty_size;

void chaos_arm(const char *below, long point, int how, int code, int trace_file)
{
    snprintf(folder, sizeof folder, "%s/", below);
    folder_size = strlen(folder);
    at = point, mode = how, error = code, trace = trace_file;
    count = 0;
    dirty_size = 0;
    armed = 1;
}

long chaos_count(void) { return count; }

void chaos_disarm(void) { armed = 0; }

static int inside(const char *path) { return strncmp(path, folder, folder_size) == 0; }

/* Writes the absolute path of `name`, relative to the folder `at_fd`. */
static const char *absolute(int at_fd, const char *name, char *found)
{
    if (name[0] == '/')
        return name;
    char link[64];
    snprintf(link, sizeof link, at_fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at_fd);
    ssize_t size = readlink(link, found, PATH_MAX - 1);
    if (size < 0)
        return "";
    snprintf(found + size, PATH_MAX - size, "/%s", name);
    return found;
}

static const char *of_file(int file, char *found)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, found, PATH_MAX - 1);
    if (size < 0)
        return "";
    found[size] = 0;
    return found;
}

static int writable(int file)
{
    int flags = fcntl(file, F_GETFL);
    return flags != -1 && (flags & O_ACCMODE) != O_RDONLY;
}

/* Remembers how much of a file is on the disk. flushed: all of it. */
static void remember(int file, int flushed)
{
    struct stat found;
    if (mode != POWER || fstat(file, &found) != 0 || !S_ISREG(found.st_mode))
        return;
    int i = 0;
    while (i < dirty_size && dirty[i].number != found.st_ino)
        i++;
    if (i == dirty_size) {
        if (i == MOST)
            return;
        dirty_size++;
        dirty[i].number = found.st_ino;
        dirty[i].flushed = flushed ? 0 : found.st_size; /* what was there before this session is old */
    }
    if (flushed)
        dirty[i].flushed = found.st_size;
}

/* Ends the process. POWER: whoever reads the trace cuts the files to what was flushed, by their inode numbers. */
static void die(void)
{
    for (int i = 0; mode == POWER && i < dirty_size; i++) {
        char line[64];
        int size = snprintf(line, sizeof line, "lost %ld %ld\n", (long)dirty[i].number, (long)dirty[i].flushed);
        syscall(SYS_write, trace, line, size);
    }
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

enum { GO, FAIL, TEAR };

/* Counts a point. takes_space: whether it fails on a full disk. Returns what to do. */
static int point(const char *what, const char *path, const char *to, int takes_space)
{
    if (!armed || !(inside(path) || (to && inside(to))))
        return GO;
    long here = ++count;
    char line[2 * PATH_MAX + 64];
    int size = snprintf(line, sizeof line, to ? "%ld %s %s -> %s\n" : "%ld %s %s\n", here, what, path, to);
    if (trace >= 0)
        syscall(SYS_write, trace, line, size);
    if (mode == FULL && here >= at && takes_space) {
        errno = error;
        return FAIL;
    }
    if (here != at)
        return GO;
    if (mode == ONCE) {
        errno = error;
        return FAIL;
    }
    if (mode == HALF && takes_space == 2)
        return TEAR;
    if (mode == KILL || mode == HALF || mode == POWER)
        die();
    return GO;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define OPEN(name, at_fd, ...) \
    { \
        char found[PATH_MAX]; \
        mode_t bits = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            bits = va_arg(more, mode_t); \
            va_end(more); \
        } \
        REAL(name); \
        if (armed && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT)) && \
            point(flags & O_CREAT ? "create" : "open", absolute(at_fd, path, found), NULL, !!(flags & O_CREAT))) \
            return -1; \
        int made = real(__VA_ARGS__, bits); \
        if (armed && made >= 0 && flags & O_TRUNC && inside(of_file(made, found))) { \
            int kept = errno; \
            remember(made, 0); \
            errno = kept; \
        } \
        return made; \
    }

int open(const char *path, int flags, ...) OPEN(open, AT_FDCWD, path, flags)
int open64(const char *path, int flags, ...) OPEN(open64, AT_FDCWD, path, flags)
int openat(int dir, const char *path, int flags, ...) OPEN(openat, dir, dir, path, flags)
int openat64(int dir, const char *path, int flags, ...) OPEN(openat64, dir, dir, path, flags)

FILE *fopen64(const char *path, const char *how)
{
    char found[PATH_MAX];
    REAL(fopen64);
    if (armed && strpbrk(how, "wa+") && point("create", absolute(AT_FDCWD, path, found), NULL, 1))
        return NULL;
    return real(path, how);
}

ssize_t write(int file, const void *data, size_t size)
{
    char found[PATH_MAX];
    REAL(write);
    if (!armed || !inside(of_file(file, found)))
        return real(file, data, size);
    int how = point("write", found, NULL, 2);
    if (how == FAIL)
        return -1;
    remember(file, 0);
    if (how == TEAR) {
        ssize_t ignored = real(file, data, size / 2);
        (void)ignored;
        die();
    }
    return real(file, data, size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t place)
{
    char found[PATH_MAX];
    REAL(pwrite64);
    if (armed && inside(of_file(file, found)) && point("write", found, NULL, 1))
        return -1;
    return real(file, data, size, place);
}

ssize_t writev(int file, const struct iovec *parts, int n)
{
    char found[PATH_MAX];
    REAL(writev);
    if (armed && inside(of_file(file, found)) && point("write", found, NULL, 1))
        return -1;
    return real(file, parts, n);
}

ssize_t sendfile64(int to, int from, off64_t *place, size_t size);
ssize_t sendfile64(int to, int from, off64_t *place, size_t size)
{
    char found[PATH_MAX];
    REAL(sendfile64);
    if (armed && inside(of_file(to, found)) && point("write", found, NULL, 1))
        return -1;
    return real(to, from, place, size);
}

ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t size, unsigned flags)
{
    char found[PATH_MAX];
    REAL(copy_file_range);
    if (armed && inside(of_file(to, found)) && point("write", found, NULL, 1))
        return -1;
    return real(from, a, to, b, size, flags);
}

#define SYNC(name) \
    int name(int file) \
    { \
        char found[PATH_MAX]; \
        REAL(name); \
        if (armed) { \
            of_file(file, found); \
            strncat(found, "/", PATH_MAX - strlen(found) - 1); /* the folder itself counts */ \
            if (inside(found)) { \
                found[strlen(found) - 1] = 0; \
                if (point("fsync", found, NULL, 1)) \
                    return -1; \
                int done = real(file); \
                remember(file, 1); \
                return done; \
            } \
        } \
        return real(file); \
    }
SYNC(fsync)
SYNC(fdatasync)

int close(int file)
{
    char found[PATH_MAX];
    REAL(close);
    if (armed && inside(of_file(file, found)) && writable(file) && point("close", found, NULL, 0)) {
        int kept = errno;
        real(file); /* as NFS does: closed, and yet an error */
        errno = kept;
        return -1;
    }
    return real(file);
}

int ftruncate64(int file, off64_t size)
{
    char found[PATH_MAX];
    REAL(ftruncate64);
    if (armed && inside(of_file(file, found)) && point("truncate", found, NULL, 0))
        return -1;
    return real(file, size);
}

int truncate64(const char *path, off64_t size)
{
    char found[PATH_MAX];
    REAL(truncate64);
    if (armed && point("truncate", absolute(AT_FDCWD, path, found), NULL, 0))
        return -1;
    return real(path, size);
}

#define TWO(name, what, space, from_fd, to_fd, declared, ...) \
    int name declared \
    { \
        char a[PATH_MAX], b[PATH_MAX]; \
        REAL(name); \
        if (armed && point(what, absolute(from_fd, from, a), absolute(to_fd, to, b), space)) \
            return -1; \
        return real(__VA_ARGS__); \
    }
TWO(rename, "rename", 1, AT_FDCWD, AT_FDCWD, (const char *from, const char *to), from, to)
TWO(renameat, "rename", 1, x, y, (int x, const char *from, int y, const char *to), x, from, y, to)
TWO(link, "link", 1, AT_FDCWD, AT_FDCWD, (const char *from, const char *to), from, to)
TWO(linkat, "link", 1, x, y, (int x, const char *from, int y, const char *to, int flags), x, from, y, to, flags)
TWO(symlink, "link", 1, AT_FDCWD, AT_FDCWD, (const char *from, const char *to), from, to)

#define ONE(name, what, space, at_fd, declared, ...) \
    int name declared \
    { \
        char found[PATH_MAX]; \
        REAL(name); \
        if (armed && point(what, absolute(at_fd, path, found), NULL, space)) \
            return -1; \
        return real(__VA_ARGS__); \
    }
ONE(unlink, "unlink", 0, AT_FDCWD, (const char *path), path)
ONE(unlinkat, "unlink", 0, dir, (int dir, const char *path, int flags), dir, path, flags)
ONE(rmdir, "rmdir", 0, AT_FDCWD, (const char *path), path)
ONE(mkdir, "mkdir", 1, AT_FDCWD, (const char *path, mode_t bits), path, bits)
ONE(mkdirat, "mkdir", 1, dir, (int dir, const char *path, mode_t bits), dir, path, bits)
