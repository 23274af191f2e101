// The kind of model GreenMalloc searched on, for comparison: for each size how often, and the mean lifetime; lifetimes drawn
// about it as the sum of five uniforms (Irwin-Hall). No phases, no threads, no realloc (a realloc counts as a free and a malloc,
// a lifetime of its own); what is never freed counts as freed at the end. rand_malloc itself takes a mean for each place in the
// program that allocates, which a trace does not know; the size stands for it.
#pragma once

#include "fit.h"

namespace heapwright::model {

// At most `classes` sizes are told apart, those with most bytes; the rest go by quarters of a doubling.
bool fit_rand_malloc(const Opener& open, RandMallocModel& model, trace::Loss& loss, std::string& error);

}  // namespace heapwright::model
