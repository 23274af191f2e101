#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  char** rows = NULL;
  size_t count = 0;
  for (; count < 5000; ++count) {
    rows = realloc(rows, (count + 1) * sizeof *rows);
    char text[32];
    snprintf(text, sizeof text, "row %zu", count);
    rows[count] = strdup(text);
  }
  size_t length = 0;
  for (size_t i = 0; i < count; ++i) {
    length += strlen(rows[i]);
    free(rows[i]);
  }
  free(rows);
  return length == 38890 ? 0 : 1;
}
