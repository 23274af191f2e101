// Fuzzes samples. A sample of a valid trace is a valid one, is packed and read as it is, and
// expands to a valid complete trace, the same for a seed. A damaged sample, packed or raw, is
// refused, or expands within bounds.
//
// The first byte of the input chooses: the bytes after it are a packed file, a raw recording, or
// choices.
#include "trace/sample.h"

#include "../../native/trace/vector_source.h"
#include "imagine.h"
#include "judge.h"
#include "model/fit.h"
#include "model/sample_error.h"
#include "model/sample_expander.h"
#include "raw_file.h"
#include "sections.h"
#include "trace/packed.h"
#include "trace_tool/open.h"

namespace {

using namespace heapwright;
using trace::Event;

constexpr std::size_t kMaxEvents = 100000;  // read of an expanded trace; a rate may stand for any number

std::unique_ptr<trace::EventSource> source_of(const std::vector<Event>& events, const trace::Header& header) {
  return std::make_unique<trace::VectorSource>(events, header);
}

// Expands what may be damaged. No tool relies on a valid order of a damaged trace, so the events
// are only counted.
void expand_damaged(const std::string& path) {
  std::string error;
  const auto sample = trace::open_trace(path, error);
  PROMISE((sample == nullptr) != error.empty());
  if (sample == nullptr) {
    return;
  }
  const auto estimate = model::sample_error(*sample);
  PROMISE(estimate.has_value() == (sample->header().sample != 0));
  const auto complete = trace::open_complete(path, trace::kSeed, error);
  PROMISE(complete != nullptr && complete->header().sample == 0);
  Event event;
  for (std::size_t events = 0; events < kMaxEvents && complete->next(event);) {
    ++events;
  }
}

// Makes the trace one of a window: its first allocations are those of objects that were live when
// it began.
void begin_window(std::vector<Event>& events, trace::Header& header) {
  header.window_begin = 1;
  header.phases = {"window"};
  auto at = events.begin();
  for (; at != events.end() && is_allocation(at->kind); ++at) {
    at->time = 0;
  }
  const std::uint32_t thread = at == events.begin() ? 0 : std::prev(at)->thread;
  events.insert(at, {.kind = trace::Kind::kPhase, .thread = thread});
}

void sample_valid(fuzz::Input in) {
  trace::Header header = fuzz::imagined_header();
  const bool window = in.byte() % 4 == 0;
  const std::uint64_t rate = 1 + in.byte();
  const std::uint64_t seed = in.byte();
  std::vector<Event> events = fuzz::imagine(in);
  if (window) {
    begin_window(events, header);
  }
  trace::SampleSource drawn(source_of(events, header), rate, seed);
  const std::vector<Event> sample = fuzz::read_all(drawn, SIZE_MAX, false);
  const trace::Header sampled = drawn.header();
  PROMISE(sampled.sample == rate);

  const std::string path = fuzz::scratch() + "/sample";
  std::string error;
  const auto writer = trace::PackedWriter::create(path, sampled, error, 1);
  PROMISE(writer != nullptr);
  for (const Event& event : sample) {
    PROMISE(writer->add(event));
  }
  PROMISE(writer->finish({}));
  const auto packed = trace::open_packed(path, error);
  PROMISE(packed != nullptr && packed->header().sample == rate);
  Event found;
  for (const Event& event : sample) {
    PROMISE(packed->next(found) && found == event);
  }
  PROMISE(!packed->next(found) && packed->loss().why.empty());

  trace::SampleSource again(source_of(sample, sampled), 2 * rate, seed);
  (void)fuzz::read_all(again, SIZE_MAX, false);
  trace::VectorSource errors(sample, sampled);
  const auto estimate = model::sample_error(errors);
  PROMISE(estimate.has_value() && estimate->rate == rate && estimate->objects <= events.size());

  model::SampleExpander one(source_of(sample, sampled), seed);
  model::SampleExpander two(source_of(sample, sampled), seed);
  const std::vector<Event> expanded = fuzz::read_all(one, kMaxEvents, false);
  PROMISE(one.header().sample == 0);
  for (const Event& event : expanded) {
    PROMISE(two.next(found) && found == event);
  }
  (void)::unlink(path.c_str());
  if (expanded.size() < 5000 && seed % 8 == 0) {
    model::FitOptions options;
    options.windows = 8;
    options.sample = rate;
    model::Model model;
    trace::Loss loss;
    (void)model::fit([&] { return source_of(expanded, one.header()); }, options, model, loss, error);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input in(data, size);
  switch (in.byte() % 4) {
    case 0:
      expand_damaged(fuzz::MemoryFile(fuzz::mended(in.rest())).path());
      break;
    case 1:
      expand_damaged(fuzz::MemoryFile(fuzz::unfold(in)).path());
      break;
    default:
      sample_valid(in);
  }
  return 0;
}
