#include "packed_format.h"

#include <array>
#include <charconv>
#include <cmath>

namespace heapwright::trace {
namespace {

void put_string(Bytes& to, std::string_view text) {
  put_varint(to, text.size());
  to += text;
}

void put_pair(Bytes& to, std::string_view key, std::string_view value) {
  put_string(to, key);
  put_string(to, value);
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The shortest decimal that gives the same number again.
void put_seconds(Bytes& to, std::string_view key, const std::optional<double>& value) {
  std::array<char, 32> text{};
  if (value) {
    const auto end = std::to_chars(text.data(), text.data() + text.size(), *value).ptr;
    put_pair(to, key, {text.data(), static_cast<std::size_t>(end - text.data())});
  }
}

std::optional<double> seconds(std::string_view text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace

Bytes section(std::string_view letters, std::string_view bytes) {
  Bytes whole(letters);
  put_fixed(whole, static_cast<std::uint32_t>(bytes.size()));
  put_fixed(whole, std::uint32_t{0});
  whole += bytes;
  const std::uint32_t sum = crc32(whole);  // with zeroes in place of the sum
  for (unsigned i = 0; i < 4; i++) {
    whole[8 + i] = static_cast<char>(sum >> (8 * i));
  }
  return whole;
}

Bytes encode_header(const Header& header, std::uint64_t tick) {
  Bytes bytes;
  for (const std::string& word : header.command) {
    put_pair(bytes, "command", word);
  }
  for (const std::string& phase : header.phases) {
    put_pair(bytes, "phase", phase);
  }
  for (const std::string& library : header.libraries) {
    put_pair(bytes, "library", library);
  }
  put_pair(bytes, "executable", header.executable);
  put_pair(bytes, "allocator", header.allocator);
  put_pair(bytes, "pid", std::to_string(header.pid));
  put_pair(bytes, "parent", std::to_string(header.parent));
  put_pair(bytes, "start", std::to_string(header.start));
  put_pair(bytes, "page_size", std::to_string(header.page_size));
  put_pair(bytes, "resident_at_start", std::to_string(header.resident_at_start));
  put_pair(bytes, "synthetic", header.synthetic ? "1" : "0");
  put_pair(bytes, "tick", std::to_string(tick));
  if (header.spawns) {
    put_pair(bytes, "spawns", "1");
  }
  if (header.ends) {
    put_pair(bytes, "ends", "1");
  }
  if (header.fills) {
    put_pair(bytes, "fills", "1");
  }
  if (header.forked.has_value()) {
    put_pair(bytes, "forked", *header.forked ? "1" : "0");
  }
  if (header.sample != 0) {
    put_pair(bytes, "sample", std::to_string(header.sample));
    put_pair(bytes, "sample_growth", header.sample_growth ? "1" : "0");
  }
  put_seconds(bytes, "window_begin_s", header.window_begin);
  put_seconds(bytes, "window_end_s", header.window_end);
  return bytes;
}

bool decode_header(std::string_view bytes, Header& header, std::uint64_t& tick) {
  ByteReader reader(bytes);
  tick = 0;
  while (reader.ok() && reader.left() > 0) {
    const std::string_view key = reader.bytes(reader.varint());
    const std::string_view value = reader.bytes(reader.varint());
    if (key == "command") {
      header.command.emplace_back(value);
    } else if (key == "phase") {
      header.phases.emplace_back(value);
    } else if (key == "library") {
      header.libraries.emplace_back(value);
    } else if (key == "executable") {
      header.executable = value;
    } else if (key == "allocator") {
      header.allocator = value;
    } else if (key == "pid") {
      header.pid = number(value);
    } else if (key == "parent") {
      header.parent = number(value);
    } else if (key == "start") {
      header.start = number(value);
    } else if (key == "page_size") {
      header.page_size = page_size_of(number(value));
    } else if (key == "resident_at_start") {
      header.resident_at_start = number(value);
    } else if (key == "synthetic") {
      header.synthetic = value == "1";
    } else if (key == "tick") {
      tick = number(value);
    } else if (key == "spawns") {
      header.spawns = value == "1";
    } else if (key == "ends") {
      header.ends = value == "1";
    } else if (key == "fills") {
      header.fills = value == "1";
    } else if (key == "forked") {
      header.forked = value == "1";
    } else if (key == "sample") {
      header.sample = number(value);
    } else if (key == "sample_growth") {
      header.sample_growth = value == "1";
    } else if (key == "window_begin_s") {
      header.window_begin = seconds(value);
    } else if (key == "window_end_s") {
      header.window_end = seconds(value);
    }
  }
  return reader.ok() && tick > 0 && header.sample <= Header::kMaxSample;
}

Bytes encode_done(const Summary& summary, const Loss& loss) {
  Bytes bytes;
  for (const std::uint64_t value :
       {summary.events, summary.allocations, summary.threads, summary.peak_live_bytes,
        summary.peak_live_objects, summary.duration, loss.bytes, loss.events, loss.failed_calls,
        static_cast<std::uint64_t>(loss.cut_short)}) {
    put_varint(bytes, value);
  }
  put_string(bytes, loss.why);
  return bytes;
}

bool decode_done(std::string_view bytes, Summary& summary, Loss& loss) {
  ByteReader reader(bytes);
  for (std::uint64_t* value :
       {&summary.events, &summary.allocations, &summary.threads, &summary.peak_live_bytes,
        &summary.peak_live_objects, &summary.duration, &loss.bytes, &loss.events, &loss.failed_calls}) {
    *value = reader.varint();
  }
  loss.cut_short = reader.varint() != 0;
  loss.why = reader.bytes(reader.varint());
  return reader.ok();
}

}  // namespace heapwright::trace
