// Writes JSON, piece by piece, into a string. The caller nests; commas and quotes are ours.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>

namespace heapwright::model {

class Json {
 public:
  Json& open(char bracket) {
    comma();
    text_ += bracket;
    fresh_ = true;
    return *this;
  }
  Json& close(char bracket) {
    text_ += bracket;
    fresh_ = false;
    return *this;
  }
  Json& key(std::string_view name) {
    quoted(name);
    text_ += ':';
    fresh_ = true;
    return *this;
  }
  Json& value(std::integral auto number) {
    comma();
    text_ += std::to_string(number);
    return *this;
  }
  Json& value(bool yes) {
    comma();
    text_ += yes ? "true" : "false";
    return *this;
  }
  // Numbers that are none become null.
  Json& value(double number) {
    comma();
    std::array<char, 40> digits{};
    (void)std::snprintf(digits.data(), digits.size(), std::isfinite(number) ? "%.10g" : "null", number);
    text_ += digits.data();
    return *this;
  }
  Json& value(std::string_view words) { return quoted(words); }
  Json& value(const char* words) { return quoted(words); }
  Json& value(const std::string& words) { return quoted(words); }
  Json& field(std::string_view name, const auto& what) {
    key(name);
    return value(what);
  }
  Json& null(std::string_view name) {
    key(name);
    comma();
    text_ += "null";
    return *this;
  }

  const std::string& text() const { return text_; }

 private:
  void comma() {
    if (!fresh_) {
      text_ += ',';
    }
    fresh_ = false;
  }
  Json& quoted(std::string_view words) {
    comma();
    text_ += '"';
    for (const char c : words) {
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        std::array<char, 8> escape{};
        (void)std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned char>(c));
        text_ += escape.data();
      } else {
        text_ += c;
      }
    }
    text_ += '"';
    return *this;
  }

  std::string text_;
  bool fresh_ = true;
};

}  // namespace heapwright::model
