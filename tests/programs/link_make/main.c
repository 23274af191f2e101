#include "words.h"

int main(void) {
  count_words(stdin, stdout);
  return 0;
}
