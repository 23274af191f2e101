/* Makes its first allocation in newlocale, while that holds the lock of setlocale, as libp11-kit of GnuTLS does. If
 * another function releases this lock meanwhile, the next readers and freelocale wait for it for ever. Also checks that
 * no error of the dynamic linker is left. A signal ends a program that hangs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static locale_t made;

/* Runs before the constructors of all libraries, so before any other allocation. */
static void first(void) { made = newlocale(LC_ALL_MASK, "POSIX", NULL); }
__attribute__((section(".preinit_array"), used)) static void (*const call_first)(void) = first;

int main(void) {
  alarm(20);
  if (made == NULL || dlerror() != NULL) return 1;
  if (strerror(ENOENT) == NULL) return 2; /* a reader of the lock */
  freelocale(made);
  return 0;
}
