// A malloc that appends the time it sees to the file $CLOCK_FILE whenever a block of 4242 bytes is requested:
// nanoseconds of the monotonic clock, microseconds of gettimeofday, seconds of time.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

void *__libc_malloc(size_t size);

void *malloc(size_t size) {
  if (size == 4242) {
    struct timespec now;
    struct timeval day;
    char line[128];
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    gettimeofday(&day, NULL);
    const int length = snprintf(line, sizeof line, "%lld %lld %lld\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec,
                                (long long)day.tv_sec * 1000000 + day.tv_usec, (long long)time(NULL));
    const int file = open(getenv("CLOCK_FILE"), O_WRONLY | O_CREAT | O_APPEND, 0666);
    (void)!write(file, line, (size_t)length);
    close(file);
  }
  return __libc_malloc(size);
}
