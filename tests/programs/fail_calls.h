/* Controls fail_calls from the program that runs under it: faults(FAULTS_PLAN, first, step, times) and so on. Without
 * fail_calls, every such call returns -1. */
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#define FAULTS 0x66617531 /* a prctl that no kernel knows */

enum {
  FAULTS_PLAN = 1, /* first, step, times: the memory calls that fail from now on */
  FAULTS_HOLD,     /* first: hold back this call for a moment; none fails */
  FAULTS_END,      /* ends the plan; returns the number of calls counted */
  FAULTS_FAILED,   /* returns the number of calls that failed */
  FAULTS_WAIT,     /* returns 1 while the call of FAULTS_HOLD is held, another number if it never came */
};

static inline long faults(long what, unsigned long first, unsigned long step, unsigned long times) {
  return syscall(SYS_prctl, FAULTS, what, first, step, times);
}
