/* Reads orders from text with OpenMP's threads: each one splits lines into blocks of its own; one thread merges them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 120000, GROUPS = 977, ROUNDS = 60 };

struct order {
    struct order *next;
    char *values;
};

int main(void) {
    char **lines = malloc(ROWS * sizeof *lines);
    for (int i = 0; i < ROWS; i++) {
        char line[64];
        snprintf(line, sizeof line, "%d,n%d,%d,%d", i, i % GROUPS, 2 * i, i);
        lines[i] = strdup(line);
    }
    struct order **orders = malloc(ROWS * sizeof *orders);
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel for schedule(dynamic, 500)
        for (int i = 0; i < ROWS; i++) {
            orders[i] = malloc(sizeof **orders);
            orders[i]->values = strdup(strchr(strchr(lines[i], ',') + 1, ',') + 1);
        }
        struct order *groups[GROUPS] = {0}; /* one thread merges; the others wait */
        long length = 0;
        for (int i = 0; i < ROWS; i++) {
            orders[i]->next = groups[i % GROUPS];
            groups[i % GROUPS] = orders[i];
            length += (long)strlen(orders[i]->values);
        }
        printf("%d %ld\n", GROUPS, length);
#pragma omp parallel for schedule(dynamic, 500)
        for (int i = 0; i < ROWS; i++) {
            free(orders[i]->values);
            free(orders[i]);
        }
    }
    for (int i = 0; i < ROWS; i++) free(lines[i]);
    free(lines);
    free(orders);
    return 0;
}
