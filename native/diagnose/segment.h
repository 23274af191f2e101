// Reads a piece of another process's memory onwards, without touching pages that are not in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "memory.h"
#include "page_map.h"

namespace heapwright::diagnose {

class Segment {
 public:
  Segment(const Memory& memory, const PageMap& page_map, std::uint64_t begin, std::uint64_t end)
      : memory_(memory), page_map_(page_map), begin_(begin), end_(end), page_(page_map.page_bytes()) {
    first_page_ = begin / page_ * page_;
    pages_ = page_map.pages(first_page_, end);
  }

  [[nodiscard]] std::uint64_t begin() const { return begin_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }

  // Returns the word at an address of the segment; nullopt if its page is not in memory.
  std::optional<std::uint64_t> word(std::uint64_t address) {
    std::uint64_t value = 0;
    if (address < window_begin_ || address + sizeof value > window_end_) {
      fill(address);
    }
    if (address < window_begin_ || address + sizeof value > window_end_) {
      return std::nullopt;
    }
    std::memcpy(&value, window_.data() + (address - window_begin_), sizeof value);
    return value;
  }

  // Counts the bytes of whole pages between two addresses that are in memory, and those that are
  // not.
  struct Pages {
    std::uint64_t resident = 0;
    std::uint64_t absent = 0;
  };
  [[nodiscard]] Pages whole_pages(std::uint64_t from, std::uint64_t to) const {
    Pages found;
    const std::uint64_t last = std::min(to, end_) / page_ * page_;
    for (std::uint64_t at = (from + page_ - 1) / page_ * page_; at < last; at += page_) {
      (is_resident(at) ? found.resident : found.absent) += page_;
    }
    return found;
  }
  [[nodiscard]] std::uint64_t resident_bytes() const {
    return page_ *
           static_cast<std::uint64_t>(std::count(pages_.begin(), pages_.end(), PageMap::Page::kResident));
  }

 private:
  static constexpr std::uint64_t kWindowBytes = 256 << 10;

  [[nodiscard]] bool is_resident(std::uint64_t page) const {
    const std::uint64_t index = (page - first_page_) / page_;
    return index < pages_.size() && pages_[index] == PageMap::Page::kResident;
  }

  // Reads from the address's page on, to the first page that is not in memory.
  void fill(std::uint64_t address) {
    const std::uint64_t from = address / page_ * page_;
    window_begin_ = window_end_ = 0;
    if (address < begin_ || address >= end_) {
      return;
    }
    if (!is_resident(from)) {  // perhaps touched since
      pages_[(from - first_page_) / page_] = page_map_.pages(from, from + page_).front();
    }
    std::uint64_t to = from;
    while (to < end_ && to - from < kWindowBytes && is_resident(to)) {
      to += page_;
    }
    window_.resize(kWindowBytes);
    if (to > from && memory_.read(from, window_.data(), to - from)) {
      window_begin_ = from;
      window_end_ = to;
    }
  }

  const Memory& memory_;
  const PageMap& page_map_;
  std::uint64_t begin_;
  std::uint64_t end_;
  std::uint64_t page_;
  std::uint64_t first_page_ = 0;
  std::vector<PageMap::Page> pages_;
  std::uint64_t window_begin_ = 0;
  std::uint64_t window_end_ = 0;
  std::vector<char> window_;
};

}  // namespace heapwright::diagnose
