/* exgen: malloc for single-threaded programs. Linking or preloading the library replaces malloc; nothing of
 * this header is needed for that. It gives the same functions explicit names, and tells how the heap is. */
#ifndef HEAPWRIGHT_EXGEN_H
#define HEAPWRIGHT_EXGEN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As the functions without the prefix. */
void* exgen_malloc(size_t bytes);
void* exgen_calloc(size_t count, size_t size);
void* exgen_realloc(void* block, size_t bytes);
void* exgen_aligned_alloc(size_t alignment, size_t bytes);
void exgen_free(void* block);
/* As C23's free_sized: `bytes` is what was asked for. */
void exgen_free_sized(void* block, size_t bytes);
/* How many bytes of the block may be used; 0 for what is no block. */
size_t exgen_usable_size(const void* block);
/* Gives all memory that is nobody's back to the kernel; 1 if there was any. */
int exgen_trim(void);
/* To be called before a thread starts in a way that exgen cannot see (clone(2); in a program that has libexgen.a, also
 * a timer or asynchronous I/O that the C library serves by threads of its own). pthread_create and thrd_create need none. */
void exgen_become_threaded(void);

/* Bytes unless said otherwise. Found by walking the heap: not for a hot loop. */
typedef struct exgen_statistics {
  size_t live;        /* in blocks the program has: their full sizes */
  size_t blocks;      /* how many of them have a size class (up to 32 KiB) */
  size_t large;       /* of live: in mappings of their own (above 1 MiB) */
  size_t superblocks; /* in superblocks in use */
  size_t kept;        /* in free superblocks that may hold memory */
  size_t given_back;  /* returned to the kernel so far */
  size_t reserved;    /* address space of the region */
} exgen_statistics;
void exgen_get_statistics(exgen_statistics* result);

#ifdef __cplusplus
}
#endif

#endif
