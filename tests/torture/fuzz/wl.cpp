// Fuzzes the reader of wl files: its events are a valid trace, which can be written as a wl file
// again.
#include "judge.h"
#include "trace/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heapwright;
  const fuzz::MemoryFile file({reinterpret_cast<const char*>(data), size});
  std::string error;
  const auto source = trace::open_wl(file.path(), error);
  PROMISE((source == nullptr) != error.empty());
  if (source != nullptr) {
    // A file has at most one operation for each byte, an operation at most two events, and threads
    // start and end.
    PROMISE(fuzz::read_all(*source).size() <= 4 * size + 64);
    const auto again = trace::open_wl(file.path(), error);
    trace::Exported done;
    const std::string path = fuzz::scratch() + "/wl";
    PROMISE(trace::write_wl(*again, path, done, error));
    (void)::unlink(path.c_str());
  }
  return 0;
}
