// Fuzzes the reader of models (JSON): a model is refused, or gives a valid trace whose memory is
// about as predicted. The first byte of the input chooses the scales.
#include "model/synth.h"

#include "judge.h"
#include "model/scale.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heapwright;
  if (size < 2) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const double heap = 0.25 + data[0] % 16 / 4.0;
  const double time = 0.25 + data[0] / 16 / 4.0;
  model::AnyModel found;
  std::string error;
  const bool read = model::read_model(text, found, error);
  PROMISE(read == error.empty());
  if (!read || !std::visit([&](auto& any) { return model::scale(any, heap, time); }, found) ||
      model::memory_needed(found) > 32e6) {
    return 0;
  }
  const auto source = model::make_synthetic(std::move(found), 1);
  (void)fuzz::read_all(*source, 50000);
  return 0;
}
