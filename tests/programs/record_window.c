// Holds 1000 blocks, and for 1.5 s allocates and frees others and replaces some of the 1000. With an argument it sends
// itself SIGUSR2 after 0.3 and after 0.6 s.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  (void)argv;
  void *held[1000];
  for (int i = 0; i < 1000; ++i) {
    held[i] = malloc(100 + i % 7);
  }
  for (int k = 0; k < 150; ++k) {
    for (int j = 0; j < 200; ++j) {
      char *volatile block = malloc(50);
      *block = 1;
      free(block);
    }
    usleep(10000);
    if (argc > 1 && (k == 30 || k == 60)) {
      raise(SIGUSR2);
    }
    if (k % 3 == 0) {
      free(held[k]);
      held[k] = malloc(5000);
    }
  }
  for (int i = 0; i < 1000; ++i) {
    free(held[i]);
  }
}
