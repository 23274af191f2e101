// Fits and draws the kind of model that GreenMalloc searched on, for comparison: the count and the
// mean lifetime of each size.
//
// Lifetimes are drawn around the mean as the sum of five uniform numbers (Irwin-Hall). The model
// has no phases, no threads and no realloc: a realloc counts as a free and a malloc, and a block
// that is never freed counts as freed at the end. rand_malloc itself takes a mean for each call
// site. A trace does not know call sites, so the size stands for the site.
#pragma once

#include "fit.h"

namespace heapwright::model {

// Fits a model. The sizes with most bytes and most requests have classes of their own, others share
// one by quarters of a doubling. The parameters are those of fit().
bool fit_rand_malloc(const Opener& open, RandMallocModel& model, trace::Loss& loss, std::string& error);

}  // namespace heapwright::model
