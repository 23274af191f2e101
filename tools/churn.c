// Frees and allocates random blocks, with LIVE blocks live and sizes like xalanc's. The figures in
// docs/design-notes/exgen.md are counted with it. With BASE it leaves out malloc and free; subtract those counts.
//
//     gcc -O2 -fno-builtin tools/churn.c -o out/churn
//     LD_PRELOAD=lib.so valgrind --tool=cachegrind --cache-sim=yes --D1=49152,12,64 --LL=2097152,16,64
//       out/churn PAIRS LIVE [BASE]
//
// Counts of one pair of free and malloc: (counts of 700000 pairs - counts of 100000) / 600000, less the same with BASE.
#include <stdint.h>
#include <stdlib.h>

static uint64_t state = 88172645463325252U;
static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

int main(int count, char** words) {
  static void* blocks[200000];
  static unsigned char none[1024];
  const long pairs = count > 1 ? atol(words[1]) : 100000;
  const unsigned live = count > 2 ? (unsigned)atoi(words[2]) : 20000;
  for (unsigned i = 0; i < live; i++) {
    blocks[i] = malloc(16 + next() % 100);
  }
  for (long i = 0; i < pairs; i++) {
    const unsigned at = next() % live;
    const uint64_t dice = next();
    const size_t size = 16 + (dice >> 8) % ((dice & 3) ? 64 : (dice & 12) ? 256 : 1000);
    if (count > 3) {
      none[size]++;
    } else {
      free(blocks[at]);
      blocks[at] = malloc(size);
      *(volatile char*)blocks[at] = 1;
    }
  }
  return 0;
}
