/* exgen: malloc for single-threaded programs. Linking or preloading the library replaces malloc; nothing of
 * this header is needed for that. It gives the same functions explicit names, and reports on the heap. */
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
/* As C23's free_sized: `bytes` is the size that was requested. */
void exgen_free_sized(void* block, size_t bytes);
/* Returns how many bytes of the block may be used; 0 if it is not a block. */
size_t exgen_usable_size(const void* block);
/* Returns free memory to the kernel: all of the calling thread, and most of other threads (docs/allocators.md).
 * Returns 1 if there was any. */
int exgen_trim(void);
/* Call this before a thread starts in a way that exgen cannot see: in a program linked with libexgen.a, by a timer or
 * asynchronous I/O that the C library serves with threads of its own. It is not needed before pthread_create and
 * thrd_create. A thread that the program makes by clone(2), without the C library, must not call malloc. */
void exgen_become_threaded(void);

/* In bytes, except `blocks`. The function walks the heap: do not call it in a hot loop. */
typedef struct exgen_statistics {
  size_t live;        /* in allocated blocks: their full sizes */
  size_t blocks;      /* how many of them have a size class (up to 32 KiB) */
  size_t large;       /* of live: in mappings of their own (above 1 MiB) */
  size_t superblocks; /* in superblocks in use */
  size_t kept;        /* in free superblocks and freed large blocks that may hold memory */
  size_t given_back;  /* returned to the kernel so far */
  size_t reserved;    /* address space of the region */
} exgen_statistics;
void exgen_get_statistics(exgen_statistics* result);

#ifdef __cplusplus
}
#endif

#endif
