#ifndef WORDS_H
#define WORDS_H
#include <stdio.h>
/* Prints each word of a stream with how often it occurs, in order of appearance. */
void count_words(FILE* in, FILE* out);
/* Calls f(0) ... f(n - 1), in two threads. */
void in_parallel(void (*f)(int), int n);
#endif
