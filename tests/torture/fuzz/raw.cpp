// Fuzzes the reader of the recorder's raw file: its events satisfy the rules of a trace (judge.h),
// and packing succeeds.
#include "judge.h"
#include "raw_file.h"
#include "trace/packed.h"
#include "trace/raw/raw_reader.h"

using namespace heapwright;

namespace {
fuzz::SeenKinds seen;
}

extern "C" bool heapwright_corpus_is_complete() { return seen.is_complete(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::unfold({data, size}));
  std::string error;
  const auto source = trace::open_raw(file.path(), error);
  PROMISE((source == nullptr) != error.empty());
  if (source == nullptr) {
    return 0;
  }
  const auto events = fuzz::read_all(*source);
  const auto writer = trace::PackedWriter::create(fuzz::scratch() + "/packed", source->header(), error, 1);
  PROMISE(writer != nullptr);
  for (const trace::Event& event : events) {
    seen.add(event.kind);
    PROMISE(writer->add(event));
  }
  return 0;
}
