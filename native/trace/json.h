// Writes and reads JSON with nlohmann/json, for heapwright-trace only: recorder, meter and
// allocators do not depend on it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace heapwright::trace {

// Keys keep the order in which they are added.
using Json = nlohmann::ordered_json;

// One line. Bytes of names and command lines that are not UTF-8 become U+FFFD, and numbers that are
// not finite become null.
inline std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace heapwright::trace
