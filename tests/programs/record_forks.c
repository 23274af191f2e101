/* Makes requests for 100 bytes, for so many milliseconds at least, then forks children one by one, each of which makes
 * requests too, after a pause of so many milliseconds. A request in ten stays allocated.
 * Usage: record_forks REQUESTS MILLISECONDS CHILDREN REQUESTS [PAUSE] */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void request(long count) {
  for (long i = 0; i < count; ++i) {
    void* volatile block = malloc(100);
    if (i % 10 != 0) free(block);
  }
}

int main(int words, char** argv) {
  if (words < 5) return 2;
  request(atol(argv[1]) / 2);
  usleep(1000 * (unsigned)atol(argv[2]));
  request(atol(argv[1]) / 2);
  for (long child = 0; child < atol(argv[3]); ++child) {
    const pid_t id = fork();
    if (id == 0) {
      if (words > 5) usleep(1000 * (unsigned)atol(argv[5]));
      request(atol(argv[4]));
      exit(0);
    }
    int status = 0;
    if (id < 0 || waitpid(id, &status, 0) != id || status != 0) return 1;
  }
  return 0;
}
