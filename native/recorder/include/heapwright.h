/* Marks for heapwright's recorder, in C and C++.
 *
 *   HEAPWRIGHT_PHASE("load");
 *
 * says that from here on the program is in the phase of this name (59 bytes of it count). It does nothing, and needs no library,
 * unless the program runs under `heapwright record`. Any thread may call it, a signal handler too. */
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
