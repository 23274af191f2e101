/* Emulates a kernel whose pages have BIG_PAGES bytes (-DBIG_PAGES=65536), when preloaded before an allocator. It
 * works for code that gets the page size by getauxval, sysconf or getpagesize, and maps by mmap and similar
 * functions: our allocators and the programs that test them.
 *
 * As in such a kernel, mappings begin at a multiple of a page, and lengths are rounded up to one. So purging or
 * protecting half a page affects the whole page. An address that is not a multiple of a page, which such a kernel
 * would refuse, ends the process with one line. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = BIG_PAGES };

unsigned long __getauxval(unsigned long type);
unsigned long getauxval(unsigned long type) { return type == AT_PAGESZ ? PAGE : __getauxval(type); }
int getpagesize(void) { return PAGE; }

long __sysconf(int name);
long sysconf(int name) { return name == _SC_PAGESIZE ? PAGE : __sysconf(name); }

static size_t whole(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static void must_be_whole(const char* call, const void* address) {
  if ((uintptr_t)address % PAGE == 0) return;
  char line[128];
  const int length = snprintf(line, sizeof line, "big_pages: %s at %p, in the middle of a page of %d bytes\n", call,
                              address, PAGE);
  syscall(SYS_write, STDERR_FILENO, line, length);
  abort();
}

static void* plain_mmap(void* address, size_t bytes, int access, int flags, int file, off_t offset) {
  return (void*)syscall(SYS_mmap, address, bytes, access, flags, file, offset);
}

/* Maps one page more than needed, and unmaps the parts before and after the aligned range. */
static void* aligned_mmap(size_t bytes, int access, int flags) {
  char* const more = plain_mmap(NULL, bytes + PAGE, access, flags, -1, 0);
  if (more == MAP_FAILED) return more;
  char* const begin = (char*)whole((uintptr_t)more);
  if (begin != more) syscall(SYS_munmap, more, begin - more);
  syscall(SYS_munmap, begin + bytes, more + PAGE - begin);
  return begin;
}

void* mmap(void* address, size_t bytes, int access, int flags, int file, off_t offset) {
  const int fixed = MAP_FIXED | MAP_FIXED_NOREPLACE;
  if ((flags & MAP_ANONYMOUS) == 0) return plain_mmap(address, bytes, access, flags, file, offset);
  if (bytes == 0 || bytes > PTRDIFF_MAX) {
    errno = bytes == 0 ? EINVAL : ENOMEM;
    return MAP_FAILED;
  }
  if ((flags & fixed) == 0) return aligned_mmap(whole(bytes), access, flags);
  must_be_whole("mmap", address);
  return plain_mmap(address, whole(bytes), access, flags, file, offset);
}

int munmap(void* address, size_t bytes) {
  must_be_whole("munmap", address);
  return (int)syscall(SYS_munmap, address, whole(bytes));
}
int mprotect(void* address, size_t bytes, int access) {
  must_be_whole("mprotect", address);
  return (int)syscall(SYS_mprotect, address, whole(bytes), access);
}
int madvise(void* address, size_t bytes, int advice) {
  must_be_whole("madvise", address);
  return (int)syscall(SYS_madvise, address, whole(bytes), advice);
}

void* mremap(void* address, size_t bytes, size_t wanted, int flags, ...) {
  must_be_whole("mremap", address);
  bytes = whole(bytes);
  wanted = whole(wanted);
  void* const stays = (void*)syscall(SYS_mremap, address, bytes, wanted, 0);
  if (stays != MAP_FAILED || (flags & MREMAP_MAYMOVE) == 0) return stays;
  void* const place = aligned_mmap(wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  if (place == MAP_FAILED) return place;
  return (void*)syscall(SYS_mremap, address, bytes, wanted, MREMAP_MAYMOVE | MREMAP_FIXED, place);
}
