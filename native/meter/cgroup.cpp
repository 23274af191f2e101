// Finds the memory cgroup of a process tree and reads its figures. See cgroup.h.
#include "cgroup.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "procfs.h"

namespace heapwright::meter {
namespace {

struct Mount {
  std::string root;  // the part of the cgroup tree that is mounted
  std::string point;
};

// Returns whether a comma-separated list contains a word.
bool lists(const std::string& list, const std::string& word) {
  std::istringstream words(list);
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) {
      return true;
    }
  }
  return false;
}

// Decodes a path of mountinfo, in which blanks and backslashes are three octal digits.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Finds the mount of the memory controller of version 1, or of version 2.
std::optional<Mount> find_mount(const std::string& mountinfo, int version) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    // 36 35 98:0 /root /point rw,noatime shared:1 - cgroup2 cgroup2 rw
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) {
      continue;
    }
    std::istringstream tail(line.substr(dash + 3));
    std::string type;
    std::string source;
    std::string options;
    tail >> type >> source >> options;
    if (version == 2 ? type != "cgroup2" : type != "cgroup" || !lists(options, "memory")) {
      continue;
    }
    std::istringstream head(line);
    std::string skipped;
    Mount mount;
    head >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    return Mount{.root = unescaped(mount.root), .point = unescaped(mount.point)};
  }
  return std::nullopt;
}

bool is_below(const std::string& folder, const std::string& top) {
  return folder == top || folder.starts_with(top + "/");
}

std::optional<MemoryGroup> group_of(pid_t process, const std::string& mountinfo) {
  return memory_group(read_proc(process, "cgroup"), mountinfo);
}

}  // namespace

std::optional<MemoryGroup> memory_group(const std::string& cgroup, const std::string& mountinfo) {
  // If version 1 has the memory controller, version 2 may be mounted without it.
  std::optional<MemoryGroup> found;
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
    // 4:memory:/path, or 0::/path
    const auto controllers = line.find(':');
    const auto path_at = line.find(':', controllers + 1);
    if (controllers == std::string::npos || path_at == std::string::npos) {
      continue;
    }
    const bool second = line.starts_with("0::");
    if ((second && found) ||
        (!second && !lists(line.substr(controllers + 1, path_at - controllers - 1), "memory"))) {
      continue;
    }
    const int version = second ? 2 : 1;
    const std::string path = line.substr(path_at + 1);
    const auto mount = find_mount(mountinfo, version);
    const std::string root = mount && mount->root != "/" ? mount->root : "";
    if (!mount || path.starts_with("/..") || !is_below(path, root)) {
      continue;
    }
    std::string folder = mount->point + path.substr(root.size());
    if (folder.ends_with('/')) {
      folder.pop_back();
    }
    found = MemoryGroup{.folder = folder, .version = version};
  }
  return found;
}

std::vector<pid_t> members_of(const std::string& folder) {
  std::vector<pid_t> members;
  std::istringstream numbers(read_text(folder + "/cgroup.procs"));
  for (pid_t process = 0; numbers >> process;) {
    members.push_back(process);
  }
  std::error_code gone;  // a group may disappear meanwhile
  for (std::filesystem::directory_iterator at(folder, gone), end; !gone && at != end; at.increment(gone)) {
    std::error_code unknown;
    if (at->is_directory(unknown)) {
      const auto more = members_of(at->path());
      members.insert(members.end(), more.begin(), more.end());
    }
  }
  return members;
}

std::optional<std::uint64_t> group_peak(const MemoryGroup& group) {
  return read_number(group.folder + (group.version == 2 ? "/memory.peak" : "/memory.max_usage_in_bytes"));
}

std::optional<std::uint64_t> group_usage(const MemoryGroup& group) {
  return read_number(group.folder + (group.version == 2 ? "/memory.current" : "/memory.usage_in_bytes"));
}

TreeGroup::TreeGroup(pid_t meter) : meter_(meter), mountinfo_(read_proc(meter, "mountinfo")) {}

void TreeGroup::look(pid_t root, const std::vector<pid_t>& tree) {
  const auto group = group_of(root, mountinfo_);
  // An exiting process appears in the root group (version 1). Checked after the group was read.
  const auto stat = read_stat(root);
  if (!group || !stat || stat->exiting) {
    read();
  } else {
    look_at(*group, tree);
  }
}

void TreeGroup::look_at(const MemoryGroup& group, const std::vector<pid_t>& tree) {
  if (group_ == group && shared_) {
    return;
  }
  if (group_ != group) {
    group_ = group;
    seen_ = shared_ = false;
    peak_before_ = group_peak(group);
    peak_ = 0;
    largest_usage_ = 0;
  }
  if (const auto members = members_of(group.folder);
      !members.empty()) {  // else all processes have just ended
    seen_ = true;
    shared_ = !is_own(group, members, tree);
  }
  read();
}

bool TreeGroup::is_own(const MemoryGroup& group, const std::vector<pid_t>& members,
                       const std::vector<pid_t>& tree) const {
  const bool only_ours = std::all_of(members.begin(), members.end(), [this](pid_t member) {
    return member != 0 && descends_from(member, meter_);
  });
  return only_ours && std::all_of(tree.begin(), tree.end(), [&](pid_t process) {
           if (std::find(members.begin(), members.end(), process) != members.end()) {
             return true;
           }
           const auto other =
               group_of(process, mountinfo_);  // it may have started after the list of members was read
           const auto stat = read_stat(process);
           return !other || !stat || stat->exiting || is_below(other->folder, group.folder);
         });
}

void TreeGroup::read() {
  if (!group_ || shared_) {
    return;
  }
  peak_ = std::max(peak_, group_peak(*group_).value_or(0));
  largest_usage_ = std::max(largest_usage_, group_usage(*group_).value_or(0));
}

std::optional<std::uint64_t> TreeGroup::peak() const {
  if (!seen_ || shared_) {
    return std::nullopt;
  }
  if (peak_before_ && peak_ > *peak_before_) {
    return peak_;
  }
  return largest_usage_ > 0 ? std::optional(largest_usage_) : std::nullopt;
}

}  // namespace heapwright::meter
