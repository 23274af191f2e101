// A model as numbers, whatever they are: refused, or a trace that makes sense and takes about the memory foretold.
#include "model/plan.h"

#include "judge.h"
#include "model/scale.h"
#include "model/synth.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heapwright;
  if (size < 2) {
    return 0;
  }
  std::FILE* const text = fmemopen(const_cast<std::uint8_t*>(data) + 1, size - 1, "r");
  model::Plan plan;
  std::string error;
  const bool read = model::read_plan(text, plan, error);
  (void)std::fclose(text);
  PROMISE(read == error.empty());
  if (!read || !model::scale(plan.model, 0.25 + data[0] % 16 / 4.0, 0.25 + data[0] / 16 / 4.0) ||
      model::memory_needed(plan) > 32e6) {
    return 0;
  }
  const auto source = model::make_synthetic(std::move(plan));
  (void)fuzz::read_all(*source, 50000);
  return 0;
}
