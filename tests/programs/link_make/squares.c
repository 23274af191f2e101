#include <stdatomic.h>

#include "words.h"

static atomic_long sum;

static void add(int i) { sum += (long)i * i; }

int main(void) {
  in_parallel(add, 100);
  printf("%ld\n", (long)sum);
  return 0;
}
