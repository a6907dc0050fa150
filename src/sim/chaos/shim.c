/* Put before libc in one process, it makes that process's disk slow, failing or full while it runs. The file named by
 * CHAOS_DISK says what happens: nothing, or one line:
 *   slow MS      fsync and fdatasync take so much longer
 *   fail ERRNO   they fail
 *   full ERRNO   writes at a place of a file fail
 * It is read at each call, so a wish counts from the next one on.
 *
 * It also counts how often the system refused the process a file descriptor (EMFILE), in the eight bytes of the file
 * named by CHAOS_FILES. That one is mapped at the start: later there may be no descriptor to open it with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static uint64_t *refused;

__attribute__((constructor)) static void map_count(void) {
    const char *path = getenv("CHAOS_FILES");
    if (!path) return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    if (ftruncate(fd, sizeof *refused) == 0) {
        void *at = mmap(NULL, sizeof *refused, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) refused = at;
    }
    close(fd);
}

/* A descriptor, or none; errno is kept. */
static int counted(int fd) {
    if (fd < 0 && errno == EMFILE && refused) __atomic_fetch_add(refused, 1, __ATOMIC_SEQ_CST);
    return fd;
}

/* The next one of this name: libc's. It is called by the type that it has. */
#define REAL(type, name) __typeof__(type) *real = (__typeof__(type) *)dlsym(RTLD_NEXT, name)

#define MODE(flags)                                       \
    mode_t mode = 0;                                      \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest;                                     \
        va_start(rest, flags);                            \
        mode = va_arg(rest, mode_t);                      \
        va_end(rest);                                     \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    REAL(int (const char *, int, mode_t), "open");
    return counted(real(path, flags, mode));
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    REAL(int (const char *, int, mode_t), "open64");
    return counted(real(path, flags, mode));
}

int openat(int dir, const char *path, int flags, ...) {
    MODE(flags)
    REAL(int (int, const char *, int, mode_t), "openat");
    return counted(real(dir, path, flags, mode));
}

int openat64(int dir, const char *path, int flags, ...) {
    MODE(flags)
    REAL(int (int, const char *, int, mode_t), "openat64");
    return counted(real(dir, path, flags, mode));
}

int socket(int domain, int type, int protocol) {
    REAL(int (int, int, int), "socket");
    return counted(real(domain, type, protocol));
}

int accept4(int fd, struct sockaddr *from, socklen_t *length, int flags) {
    REAL(int (int, struct sockaddr *, socklen_t *, int), "accept4");
    return counted(real(fd, from, length, flags));
}

static int wish(const char *verb, long *value) {
    const char *path = getenv("CHAOS_DISK");
    if (!path) return 0;
    int kept = errno;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        errno = kept;
        return 0;
    }
    char text[64];
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    errno = kept;
    if (n <= 0) return 0;
    text[n] = 0;
    size_t length = strlen(verb);
    if (strncmp(text, verb, length) != 0) return 0;
    *value = atol(text + length);
    return 1;
}

static int synced(const char *name, int fd) {
    long value;
    if (wish("slow ", &value)) usleep((useconds_t)value * 1000);
    if (wish("fail ", &value)) {
        errno = (int)value;
        return -1;
    }
    REAL(int (int), name);
    return real(fd);
}

int fsync(int fd) { return synced("fsync", fd); }

int fdatasync(int fd) { return synced("fdatasync", fd); }

static ssize_t written(const char *name, int fd, const void *from, size_t count, off_t at) {
    long value;
    if (wish("full ", &value)) {
        errno = (int)value;
        return -1;
    }
    REAL(ssize_t (int, const void *, size_t, off_t), name);
    return real(fd, from, count, at);
}

ssize_t pwrite(int fd, const void *from, size_t count, off_t at) { return written("pwrite", fd, from, count, at); }

ssize_t pwrite64(int fd, const void *from, size_t count, off_t at) {
    return written("pwrite64", fd, from, count, at);
}
