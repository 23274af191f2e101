// Reads all events of a raw file that a test has built.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "raw_builder.h"

namespace heapwright::trace {

struct Read {
  std::vector<Event> events;
  Loss loss;
  Header header;
};

inline Read read_file(const std::string& path) {
  std::string error;
  const std::unique_ptr<EventSource> source = open_raw(path, error);
  EXPECT_NE(source, nullptr) << error;
  Read read;
  Event event;
  while (source->next(event)) {
    read.events.push_back(event);
  }
  read.loss = source->loss();
  read.header = source->header();
  return read;
}

inline Read read_bytes(const std::vector<std::uint8_t>& bytes) {
  return read_file(recorder::TemporaryFile(bytes).path());
}

inline Read read_built(const recorder::RawBuilder& builder) { return read_bytes(builder.bytes()); }

}  // namespace heapwright::trace
