#include "words.h"

#include <stdlib.h>
#include <string.h>

struct word {
  char* text;
  int count;
  struct word* next;
};

void count_words(FILE* in, FILE* out) {
  struct word* first = NULL;
  struct word** end = &first;
  char text[100];
  while (fscanf(in, "%99s", text) == 1) {
    struct word* word = first;
    while (word != NULL && strcmp(word->text, text) != 0) {
      word = word->next;
    }
    if (word == NULL) {
      word = calloc(1, sizeof *word);
      word->text = strdup(text);
      *end = word;
      end = &word->next;
    }
    ++word->count;
  }
  for (struct word* word = first; word != NULL;) {
    struct word* const next = word->next;
    fprintf(out, "%s %d%s", word->text, word->count, next == NULL ? "\n" : " ");
    free(word->text);
    free(word);
    word = next;
  }
}
