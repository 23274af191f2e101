/* Behaves as $MOOD says: normally, with another output, a crash, a failure or a hang; 'lean' does half the work. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void) {
  const char* mood = getenv("MOOD");
  if (mood == NULL) mood = "";
  const size_t size = strcmp(mood, "lean") == 0 ? 4UL << 20 : 8UL << 20;
  for (int round = 0; round < 4; ++round) {
    char* block = malloc(size);
    if (block == NULL) return 1;
    memset(block, round, size);
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
  }
  if (strcmp(mood, "crash") == 0) raise(SIGSEGV);
  if (strcmp(mood, "fail") == 0) return 3;
  if (strcmp(mood, "hang") == 0) pause();
  puts(strcmp(mood, "other") == 0 ? "something else" : "the same");
  return 0;
}
