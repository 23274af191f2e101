// Defines the rows about glibc's extensions (mallopt, mallinfo2, malloc_trim, malloc_stats,
// malloc_info, and the __libc_ names of its functions), which musl lacks, and about the sized frees
// of C23.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "allocator_api.h"

namespace heapwright::api {

inline std::size_t resident() {
  char text[128] = {};
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  std::size_t pages = 0;
  if (read(file, text, sizeof text - 1) > 0) {
    (void)std::sscanf(text, "%*s %zu", &pages);
  }
  close(file);
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// The version of glibc's oldest symbols.
#ifdef __aarch64__
inline constexpr const char* kFirstVersion = "GLIBC_2.17";
#else
inline constexpr const char* kFirstVersion = "GLIBC_2.2.5";
#endif

constexpr std::size_t kMany = 65536;
inline void* many[kMany];

inline void take_many(std::size_t size) {
  for (void*& block : many) {
    block = malloc(size);
    std::memset(block, 1, size);
  }
}

inline void free_many() {
  for (void*& block : many) {
    free(block);
  }
}

// Reports whether a call writes to a file descriptor, and whether its output begins as it should.
//
//   answer  gets the report
//   to      the file descriptor
//   call    the call
//   begins  the expected beginning; empty: any
template <class Call>
void written(Answer& answer, int to, Call call, const char* begins) {
  const int file = memfd_create("written", 0);
  const int before = dup(to);
  dup2(file, to);
  call();
  dup2(before, to);
  char text[64] = {};
  const ssize_t bytes = pread(file, text, sizeof text - 1, 0);
  answer.add("%s", bytes > 0 ? "writes" : "writes nothing");
  if (bytes > 0 && *begins != '\0') {
    answer.add(", begins %s", std::strncmp(text, begins, std::strlen(begins)) == 0 ? begins : "otherwise");
  }
}

// Finds a function that the C library also exports under another name. free must accept its blocks.
template <class Function>
Function* alias(const char* name, const char* version = nullptr) {
#ifdef __GLIBC__
  if (version != nullptr) {
    return reinterpret_cast<Function*>(dlvsym(RTLD_DEFAULT, name, version));
  }
#else
  (void)version;
#endif
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// Obtains blocks from `take` and frees them. It frees many, so that a corrupted free list shows.
template <class Take>
void freed(Answer& answer, Take take) {
  void* blocks[100];
  for (void*& block : blocks) {
    block = take();
    if (block == nullptr || malloc_usable_size(block) < 100) {
      answer.add("no such block of malloc's");
      return;
    }
    std::memset(block, 1, 100);
  }
  for (void* const block : blocks) {
    free(block);
  }
  answer.add("works");
}

#ifdef __GLIBC__
inline const Row kGlibcRows[] = {
    {"mallopt(M_MMAP_THRESHOLD)", [](Answer& a) { a.add("%d", mallopt(M_MMAP_THRESHOLD, 1 << 20)); }},
    {"mallopt(M_TRIM_THRESHOLD)", [](Answer& a) { a.add("%d", mallopt(M_TRIM_THRESHOLD, 1 << 20)); }},
    {"mallopt(M_ARENA_MAX)", [](Answer& a) { a.add("%d", mallopt(M_ARENA_MAX, 2)); }},
    {"mallopt(M_MXFAST, too much)", [](Answer& a) { a.add("%d", mallopt(M_MXFAST, 1 << 20)); }},
    {"mallopt(unknown)", [](Answer& a) { a.add("%d", mallopt(-4711, 1)); }},
    {"mallinfo2 grows and falls",
     [](Answer& a) {
       const auto in_use = [] {
         const struct mallinfo2 info = mallinfo2();
         return info.uordblks + info.hblkhd;
       };
       const std::size_t before = in_use();
       take_many(1000);
       const std::size_t full = in_use();
       free_many();
       const std::size_t after = in_use();
       a.add("%s", full >= before + kMany * 1000 ? "grows" : "does not grow");
       a.add(", %s", after < before + kMany * 100 ? "falls" : "does not fall");
     }},
    {"mallinfo2 knows large blocks",
     [](Answer& a) {
       const struct mallinfo2 before = mallinfo2();
       void* const block = malloc(kGiB / 8);
       const struct mallinfo2 after = mallinfo2();
       const std::size_t grown = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
       a.add("%s", grown >= kGiB / 8 ? "yes" : "no");
       free(block);
     }},
    {"mallinfo knows blocks",
     [](Answer& a) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
       const int before = mallinfo().uordblks;
       void* const block = malloc(50000);
       a.add("%s", mallinfo().uordblks - before >= 50000 ? "yes" : "no");
#pragma GCC diagnostic pop
       free(block);
     }},
    {"malloc_trim gives back",
     [](Answer& a) {
       take_many(1000);
       void*& newest = many[kMany - 1];
       void* const kept = newest;  // at the top of glibc's heap: free alone purges nothing
       newest = nullptr;
       const std::size_t full = resident();
       free_many();
       errno = kKept;
       malloc_trim(0);
       const char* const name = errno_name();
       a.add("%s, errno %s", full > resident() + kMany * 900 ? "nearly all" : "too little", name);
       free(kept);
     }},
    {"malloc_trim returns",
     [](Answer& a) {
       const int one = malloc_trim(0);
       const int two = malloc_trim(0);
       a.add("%s, then %d", one == 0 || one == 1 ? "0 or 1" : "another number", two);
     }},
    {"malloc_stats", [](Answer& a) { written(a, STDERR_FILENO, [] { malloc_stats(); }, ""); }},
    {"malloc_info",
     [](Answer& a) {
       const auto call = [] {
         (void)malloc_info(0, stdout);
         (void)std::fflush(stdout);
       };
       written(a, STDOUT_FILENO, call, "<malloc version=");
       errno = kKept;
       const int wrong = malloc_info(1, stdout);
       a.add(", options 1: %s, errno %s", errno_name(wrong), errno_name());
     }},
    {"__libc_malloc",
     [](Answer& a) { freed(a, [] { return alias<void*(std::size_t)>("__libc_malloc")(100); }); }},
    {"__libc_calloc",
     [](Answer& a) {
       freed(a, [] { return alias<void*(std::size_t, std::size_t)>("__libc_calloc")(10, 10); });
     }},
    {"__libc_realloc",
     [](Answer& a) {
       freed(a, [] { return alias<void*(void*, std::size_t)>("__libc_realloc")(malloc(10), 100); });
     }},
    {"__libc_memalign",
     [](Answer& a) {
       freed(a, [] { return alias<void*(std::size_t, std::size_t)>("__libc_memalign")(64, 100); });
     }},
    {"__libc_valloc",
     [](Answer& a) { freed(a, [] { return alias<void*(std::size_t)>("__libc_valloc")(100); }); }},
    {"__libc_pvalloc",
     [](Answer& a) { freed(a, [] { return alias<void*(std::size_t)>("__libc_pvalloc")(100); }); }},
    {"__posix_memalign",
     [](Answer& a) {
       if (alias<void>("__posix_memalign") == nullptr) {
         a.add("absent");
         return;
       }
       freed(a, [] {
         void* block = nullptr;
         alias<int(void**, std::size_t, std::size_t)>("__posix_memalign")(&block, 64, 100);
         return block;
       });
     }},
    {"__libc_free",
     [](Answer& a) {
       for (int i = 0; i < 100; ++i) {
         alias<void(void*)>("__libc_free")(malloc(100));
       }
       freed(a, [] { return malloc(100); });
     }},
    {"cfree",
     [](Answer& a) {
       auto* function = alias<void(void*)>("cfree");
       function = function != nullptr ? function : alias<void(void*)>("cfree", kFirstVersion);
       for (int i = 0; i < 100; ++i) {
         function(malloc(100));
       }
       freed(a, [] { return malloc(100); });
     }},
};
#endif

// Rows that do not need glibc.
inline const Row kLibraryRows[] = {
    {"strdup and asprintf give malloc's blocks",
     [](Answer& a) {
       const char* volatile text =
           "a text of somewhat more than one hundred characters, so that the block that holds it"
           " is large enough for the test";
       freed(a, [&] { return strdup(text); });
       a.add(", ");
       freed(a, [&]() -> void* {
         char* made = nullptr;
         return asprintf(&made, "%s", text) > 0 ? made : nullptr;
       });
     }},
    {"free_sized",
     [](Answer& a) {
       auto* const function = alias<void(void*, std::size_t)>("free_sized");
       if (function == nullptr) {
         a.add("absent");
         return;
       }
       for (std::size_t size = 0; size < kGiB / 64; size += size / 3 + 1) {
         errno = kKept;
         function(malloc(size), size);
         function(calloc(1, size), size);
         function(nullptr, size);
       }
       a.add("works, errno %s", errno_name());
     }},
    {"free_aligned_sized",
     [](Answer& a) {
       auto* const function = alias<void(void*, std::size_t, std::size_t)>("free_aligned_sized");
       if (function == nullptr) {
         a.add("absent");
         return;
       }
       for (std::size_t size = 64; size < kGiB / 64; size *= 2) {
         errno = kKept;
         function(aligned_alloc(64, size), 64, size);
         function(nullptr, 64, size);
       }
       a.add("works, errno %s", errno_name());
     }},
};

}  // namespace heapwright::api
