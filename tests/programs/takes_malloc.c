/* Takes the address of malloc. In a program linked at a fixed address, this is the address of a stub in the
 * program, and every library that refers to malloc gets the stub's address. */
#include <stdlib.h>

static void* (*volatile taken)(size_t) = malloc;

int main(void) {
  void* block = taken(100);
  const int failed = block == NULL;
  free(block);
  return failed;
}
