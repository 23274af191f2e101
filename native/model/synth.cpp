#include "synth.h"

#include <utility>

#include "windows_source.h"

namespace heapwright::model {

std::unique_ptr<trace::EventSource> make_windows_source(Model model, std::uint64_t seed) {
  return std::make_unique<WindowsSource>(std::move(model), seed);
}

std::unique_ptr<trace::EventSource> make_synthetic(AnyModel model, std::uint64_t seed) {
  if (auto* const simple = std::get_if<RandMallocModel>(&model)) {
    return make_rand_malloc_source(std::move(*simple), seed);
  }
  return make_windows_source(std::get<Model>(std::move(model)), seed);
}

}  // namespace heapwright::model
