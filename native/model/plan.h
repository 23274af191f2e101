// A model as Python hands it over: whole numbers with white space between them, in the order of docs/synth.md. Python has
// checked the JSON; here nothing is believed either.
//
//     heapwright-plan 2 windows SEED
//     TICKS NS SIZED_FREES THREADS
//     CLASSES  each: N (SIZE COUNT)*N  CALLOCS  N (ALIGNMENT COUNT)*N  IN_ORDER IN_REVERSE TOUCHED  N (BIN COUNT AT)*N  N (THREAD COUNT)*N  OWN  N (THREAD COUNT)*N
//     WINDOWS  each: TICKS NS TURNS  N parts…  N rows…  N handed…  N resizes…      (N counts numbers)
//     N script…  N ends…
//
//     heapwright-plan 2 rand-malloc SEED
//     NS CLASSES  each: SIZE COUNT LIFETIME
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "model.h"

namespace heapwright::model {

// A size class of the rand_malloc kind: its mean size, how often it is allocated, its mean lifetime in allocations.
struct MeanClass {
  std::uint64_t size = 0;
  std::uint64_t count = 0;
  std::uint64_t lifetime = 0;
};

struct Plan {
  std::uint64_t seed = 0;
  bool rand_malloc = false;
  Model model;                   // of the windows kind
  std::vector<MeanClass> means;  // of the other
  std::uint64_t nanoseconds = 0;
};

// False with a line in `error` for what is no plan.
bool read_plan(std::FILE* file, Plan& plan, std::string& error);

}  // namespace heapwright::model
