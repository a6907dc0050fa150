/* Put before libc in one process, it makes that process's disk slow, failing or full while it runs. The file named by
 * CHAOS_DISK says what happens: nothing, or one line:
 *   slow MS      fsync and fdatasync take so much longer
 *   fail ERRNO   they fail
 *   full ERRNO   writes at a place of a file fail
 * It is read at each call, so a wish counts from the next one on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int wish(const char *verb, long *value) {
    const char *path = getenv("CHAOS_DISK");
    if (!path) return 0;
    int kept = errno;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
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
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
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
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name);
    return real(fd, from, count, at);
}

ssize_t pwrite(int fd, const void *from, size_t count, off_t at) { return written("pwrite", fd, from, count, at); }

ssize_t pwrite64(int fd, const void *from, size_t count, off_t at) {
    return written("pwrite64", fd, from, count, at);
}
