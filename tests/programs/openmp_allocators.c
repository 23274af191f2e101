/* Shows which of OpenMP's allocators get their memory from malloc: an example of reaper under omp_alloc.
 *
 *     gcc -O2 -fopenmp openmp_allocators.c -ldl && LD_PRELOAD=libreaper.so ./a.out
 *     default 64: 500
 *
 * For each allocator and size, it prints how many of 500 blocks from omp_alloc were malloc's. Reaper's statistics
 * give the number, exactly because one thread allocates. Under another malloc it is unknown, and '-' is printed.
 * Then threads fill, hand over and free blocks of every allocator; a wrong byte ends the program with status 1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 500, kThreads = 4 };
typedef struct statistics { /* as in reaper.h, which is not included so that the program compiles without it */
  size_t live, blocks, large, superblocks, kept, given_back, reserved;
} statistics;
typedef struct kind {
  const char* name;
  omp_allocator_handle_t allocator;
} kind;

static void (*get_statistics)(statistics*);
static void* blocks[kThreads][kBlocks];

static long blocks_of_malloc(void) {
  statistics now;
  get_statistics(&now);
  return (long)now.blocks;
}

static void count(const kind* one, size_t bytes) {
  omp_free(omp_alloc(bytes, one->allocator), one->allocator); /* so that one-time allocations are done */
  long before = get_statistics ? blocks_of_malloc() : 0;
  int failed = 0;
  for (int i = 0; i < kBlocks; ++i) {
    blocks[0][i] = omp_alloc(bytes, one->allocator);
    failed += blocks[0][i] == NULL;
  }
  if (get_statistics) {
    printf("%s %zu: %ld\n", one->name, bytes, failed == kBlocks ? -1 : blocks_of_malloc() - before);
  } else {
    printf("%s %zu: -\n", one->name, bytes);
  }
  for (int i = 0; i < kBlocks; ++i) {
    omp_free(blocks[0][i], one->allocator);
  }
}

/* Each thread fills blocks, the next one checks and frees them. */
static int hand_over(const kind* one) {
  int wrong = 0;
#pragma omp parallel num_threads(kThreads) reduction(+ : wrong)
  {
    int me = omp_get_thread_num(), other = (me + 1) % omp_get_num_threads();
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < kBlocks; ++i) {
        size_t bytes = (size_t)(1 + (i * 37 + round) % 900);
        blocks[me][i] = omp_alloc(bytes, one->allocator);
        if (blocks[me][i] != NULL) {
          memset(blocks[me][i], me + 1, bytes);
        }
      }
#pragma omp barrier
      for (int i = 0; i < kBlocks; ++i) {
        size_t bytes = (size_t)(1 + (i * 37 + round) % 900);
        const unsigned char* block = blocks[other][i];
        for (size_t k = 0; block != NULL && k < bytes; ++k) {
          wrong += block[k] != other + 1;
        }
        omp_free(blocks[other][i], one->allocator);
      }
#pragma omp barrier
    }
  }
  return wrong;
}

int main(void) {
  *(void**)&get_statistics = dlsym(RTLD_DEFAULT, "reaper_get_statistics");
  omp_alloctrait_t aligned[] = {{omp_atk_alignment, 256}};
  omp_alloctrait_t pool[] = {{omp_atk_pool_size, 1 << 20}, {omp_atk_fallback, omp_atv_null_fb}};
  kind kinds[] = {
      {"default", omp_default_mem_alloc},
      {"large-capacity", omp_large_cap_mem_alloc},
      {"high-bandwidth", omp_high_bw_mem_alloc},
      {"thread", omp_thread_mem_alloc},
      {"aligned", omp_init_allocator(omp_default_mem_space, 1, aligned)},
      {"pool", omp_init_allocator(omp_default_mem_space, 2, pool)},
  };
  int wrong = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    count(&kinds[i], 64);
    count(&kinds[i], 30000);
    wrong += hand_over(&kinds[i]);
  }
  return wrong ? 1 : 0;
}
