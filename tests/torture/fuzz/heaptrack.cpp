// Fuzzes the reader of heaptrack's text.
#include "judge.h"
#include "trace/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heapwright;
  if (size == 0) {
    return 0;
  }
  std::FILE* const text = fmemopen(const_cast<std::uint8_t*>(data), size, "r");
  std::string error;
  {
    const auto source = trace::open_heaptrack(text, error);
    PROMISE((source == nullptr) != error.empty());
    if (source != nullptr) {
      PROMISE(fuzz::read_all(*source).size() <= size);
    }
  }
  (void)std::fclose(text);
  return 0;
}
