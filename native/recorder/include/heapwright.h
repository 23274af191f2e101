/* Marks the phases of a program for heapwright's recorder, in C and C++.
 *
 *   HEAPWRIGHT_PHASE("load");
 *
 * begins the phase of this name; the first 59 bytes of the name count. Without `heapwright record` it
 * does nothing and needs no library. Any thread and any signal handler may call it. */
#ifndef HEAPWRIGHT_H
#define HEAPWRIGHT_H

#ifdef __cplusplus
extern "C" {
#endif

__attribute__((weak)) void heapwright_phase(const char* name);

#ifdef __cplusplus
}
#endif

#define HEAPWRIGHT_PHASE(name) ((void)(heapwright_phase ? heapwright_phase(name) : (void)0))

#endif
