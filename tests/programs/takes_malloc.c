/* Takes malloc's address: built at a fixed address, that is the address of a stub in the program itself, and every library
 * that asks for malloc gets it. */
#include <stdlib.h>

static void* (*volatile taken)(size_t) = malloc;

int main(void) {
  void* block = taken(100);
  const int failed = block == NULL;
  free(block);
  return failed;
}
