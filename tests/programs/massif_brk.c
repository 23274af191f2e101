/* brk up and down by odd amounts; below 8 MiB in all, which is all Valgrind grants to brk. */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <unistd.h>

#define FAILED ((void*)-1)

int main(void) {
  static const intptr_t steps[] = {1,     4095,  1,       4096,   100000,   -50000,   777,
                                   65536, -4096, -1,      500000, -12345,   4000,     -4000,
                                   123,   -99,   2000000, -1,     1,        -1500000, 3000000,
                                   -4096, 8192,  -8191,   1,      -2000000, 900000,   -900000};
  for (int round = 0; round < 3; ++round) {
    for (unsigned step = 0; step < sizeof steps / sizeof *steps; ++step) {
      char* old = sbrk(steps[step]);
      if (old == FAILED) return 1;
      if (steps[step] > 0) *old = 1;
    }
  }
  return sbrk(-1000000) == FAILED;
}
