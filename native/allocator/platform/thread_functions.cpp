// Brings the functions of POSIX threads into a static program that links our archive, with
// -Wl,-u,heapwright_thread_functions. Only the archive has this file: a dynamic program has
// libc.so.
//
// - exgen calls the C library's pthread_create and thrd_create by their other names, which nothing else
//   asks for.
// - gcc's libraries (libgfortran, libgcc_eh, libobjc) refer to these functions weakly. They take all of
//   them to be there if __pthread_key_create is, and our archive brings that one. Without this file the
//   others would be null, and a call of one would crash.
//
// A relocation of type NONE refers to a symbol, so that the linker takes its definition out of
// libc.a, and changes nothing. The list is that of gcc's gthr-posix.h.
#include <features.h>

#if defined(__x86_64__)
#define REFER_TO(symbol) asm(".reloc 0, R_X86_64_NONE, " #symbol)
#elif defined(__aarch64__)
#define REFER_TO(symbol) asm(".reloc 0, R_AARCH64_NONE, " #symbol)
#else
#define REFER_TO(symbol)
#endif

extern "C" {
[[gnu::visibility("hidden")]] extern const char heapwright_thread_functions = 0;
}

REFER_TO(__pthread_create);
#ifdef __GLIBC__
REFER_TO(__thrd_create);
REFER_TO(pthread_attr_destroy);
REFER_TO(pthread_attr_init);
REFER_TO(pthread_attr_setdetachstate);
REFER_TO(pthread_cancel);
REFER_TO(pthread_cond_broadcast);
REFER_TO(pthread_cond_destroy);
REFER_TO(pthread_cond_init);
REFER_TO(pthread_cond_signal);
REFER_TO(pthread_cond_timedwait);
REFER_TO(pthread_cond_wait);
REFER_TO(pthread_create);
REFER_TO(pthread_detach);
REFER_TO(pthread_equal);
REFER_TO(pthread_exit);
REFER_TO(pthread_getschedparam);
REFER_TO(pthread_getspecific);
REFER_TO(pthread_join);
REFER_TO(pthread_key_create);
REFER_TO(pthread_key_delete);
REFER_TO(pthread_mutex_destroy);
REFER_TO(pthread_mutex_init);
REFER_TO(pthread_mutex_lock);
REFER_TO(pthread_mutex_timedlock);
REFER_TO(pthread_mutex_trylock);
REFER_TO(pthread_mutex_unlock);
REFER_TO(pthread_mutexattr_destroy);
REFER_TO(pthread_mutexattr_init);
REFER_TO(pthread_mutexattr_settype);
REFER_TO(pthread_once);
REFER_TO(pthread_self);
REFER_TO(pthread_setschedparam);
REFER_TO(pthread_setspecific);
REFER_TO(sched_get_priority_max);
REFER_TO(sched_get_priority_min);
REFER_TO(sched_yield);
#endif
