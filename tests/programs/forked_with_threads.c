/* Starts so many threads, which sleep, and forks a child, which maps 1 MiB for a moment. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void* run(void* unused) {
  pause();
  return unused;
}

int main(int count, char** words) {
  for (int i = 0; i < (count > 1 ? atoi(words[1]) : 1); i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) != 0) return 1;
  }
  usleep(100000);
  if (fork() == 0) {
    usleep(100000);
    void* volatile block = malloc(1 << 20);
    free(block);
    _exit(0);
  }
  wait(NULL);
  _exit(0);
}
