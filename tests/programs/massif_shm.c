/* System V shared memory: attached twice, detached once before a larger mapping. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

int main(void) {
  const int id = shmget(IPC_PRIVATE, (6UL << 20) + 1000, IPC_CREAT | 0600);
  if (id < 0) return 1;
  char* first = shmat(id, NULL, 0);
  char* second = shmat(id, NULL, SHM_RDONLY);
  shmctl(id, IPC_RMID, NULL);
  if (first == (char*)-1 || second == (char*)-1) return 1;
  first[0] = second[1];
  if (shmdt(first) != 0) return 1;
  char* block = mmap(NULL, 9UL << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return 1;
  return shmdt(second) != 0 || munmap(block, 9UL << 20) != 0;
}
