/* What a program under fail_calls says to it: faults(FAULTS_PLAN, first, step, times) and so on. Without fail_calls every such
 * call returns -1. */
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#define FAULTS 0x66617531 /* a prctl that no kernel knows */

enum {
  FAULTS_PLAN = 1, /* first, step, times: which of the memory calls from now on fail */
  FAULTS_HOLD,     /* first: that call is held back for a moment, and nothing fails */
  FAULTS_END,      /* nothing fails any more; returns how many calls there were */
  FAULTS_FAILED,   /* returns how many have failed */
  FAULTS_WAIT,     /* returns 1 when the call of FAULTS_HOLD is being held, another number when it never came */
};

static inline long faults(long what, unsigned long first, unsigned long step, unsigned long times) {
  return syscall(SYS_prctl, FAULTS, what, first, step, times);
}
