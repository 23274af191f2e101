// Exports C++'s operators new and delete, and passes each call to the next definition in the search
// order of the dynamic linker.
//
// The definitions of a C++ runtime call malloc and free, which the recorder sees anyway. An
// allocator that is preloaded after the recorder may define its own, which never call malloc. So
// new records the block here, unless malloc has recorded it meanwhile. delete records the block
// here only if the next definition is not the runtime's.
#include <dlfcn.h>

#include <cstring>
#include <new>

#include "real.h"

#if HEAPWRIGHT_SAMPLING
#include "sample_calls.h"
#else
#include "calls.h"
#endif

#define HEAPWRIGHT_EXPORT [[gnu::visibility("default")]]

namespace heapwright::recorder {

namespace {

[[noreturn]] void fail_without_runtime() {
  static constexpr char kLine[] =
      "heapwright: operator new or delete was called, but there is no C++ runtime\n";
  sys::write_file(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  __builtin_trap();
}

struct Definition {
  void* symbol;
  bool of_runtime;  // libstdc++'s or libc++'s
};

// Returns the next definition of an operator. RTLD_NEXT does not see a runtime that was loaded by
// dlopen, so the runtimes are also looked up by name. The loader then replaces blocks that the
// program's dlopen made. So its calls are recorded as the program's.
[[gnu::noinline, gnu::cold]] Definition next_definition(const char* name) {
  void* symbol = dlsym(RTLD_NEXT, name);
  for (const char* library : {"libstdc++.so.6", "libc++.so.1"}) {
    if (symbol == nullptr) {
      void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
      symbol = handle == nullptr ? nullptr : dlsym(handle, name);
    }
  }
  forget_dl_error();
  Dl_info from{};
  if (symbol == nullptr || dladdr(symbol, &from) == 0 || from.dli_fname == nullptr) {
    fail_without_runtime();
  }
  const char* const slash = std::strrchr(from.dli_fname, '/');
  const char* const file = slash == nullptr ? from.dli_fname : slash + 1;
  return {symbol, std::strncmp(file, "libstdc++", 9) == 0 || std::strncmp(file, "libc++", 6) == 0};
}

struct Operator {
  const char* name;
  void* function = nullptr;
  bool runtime = false;  // it is the runtime's and calls malloc and free

  [[gnu::noinline, gnu::cold]] void find() {
    const sys::KeepErrno keep;
    const Definition found = next_definition(name);
    runtime = found.of_runtime;
    if (kSampling && runtime) {
      // The runtime's operators call plain new and delete, which a library may define.
      const bool is_delete = std::strncmp(name, "_Zd", 3) == 0;
      runtime = next_definition(is_delete ? "_ZdlPv" : "_Znwm").of_runtime;
    }
    __atomic_store_n(&function, found.symbol, __ATOMIC_RELEASE);
  }

  template <class F>
  [[gnu::always_inline]] F* get() {
    if (HEAPWRIGHT_UNLIKELY(__atomic_load_n(&function, __ATOMIC_ACQUIRE) == nullptr)) {
      find();
    }
    return reinterpret_cast<F*>(function);
  }
};

// Whether an operator new returns another address than the malloc that it calls. Then its delete
// calls free with that of malloc, and free records it.
bool new_has_header = false;

// Like call_new, for an operator that is not the runtime's.
template <class... Arguments>
[[gnu::noinline]] void* call_other_new(void* (*function)(std::size_t, Arguments...), std::size_t size,
                                       std::size_t alignment, Arguments... arguments) {
  ThreadState& self = self_state;
  const MallocWatch malloc(self);
  void* const block = function(size, arguments...);
  if (block == nullptr || self.location == Location::kAllocator) {
    return block;
  }
  if (malloc.has_recorded(block, size)) {
    if (!malloc.has_recorded_at(block)) {
      __atomic_store_n(&new_has_header, true, __ATOMIC_RELAXED);
    }
    return block;
  }
  const auto as_it_is = [=] { return block; };
  return alignment == 0 ? on_alloc<true>(Tag::kMalloc, size, as_it_is)  // it may have filled the block
                        : on_aligned_alloc<true>(alignment, size, as_it_is);
}

// Calls the next operator new and records the block unless malloc did. The operator may throw:
// nothing here has to be undone.
//
// next       the operator
// size       bytes the program asks for
// alignment  bytes; 0 for the operators without alignment
// arguments  the arguments after the size
template <class... Arguments>
[[gnu::always_inline]] inline void* call_new(Operator& next, std::size_t size, std::size_t alignment,
                                             Arguments... arguments) {
  auto* const function = next.get<void*(std::size_t, Arguments...)>();
  if (HEAPWRIGHT_UNLIKELY(!next.runtime)) {
    return call_other_new<Arguments...>(function, size, alignment, arguments...);
  }
  // A sample must cost almost nothing. So the recorder calls malloc, as the C++ runtime does.
  if (kSampling && alignment == 0) {
    const std::size_t bytes = size + (size == 0 ? 1 : 0);
    void* const block = on_alloc(Tag::kMalloc, bytes, [=] { return real.malloc(bytes); });
    if (HEAPWRIGHT_LIKELY(block != nullptr)) {
      return block;
    }
  }
  return next.get<void*(std::size_t, Arguments...)>()(size, arguments...);
}

// Like call_delete, for an operator that is not the runtime's.
template <class... Arguments>
[[gnu::noinline]] void call_other_delete(void (*function)(void*, Arguments...), Tag kind, void* block,
                                         Arguments... arguments) {
  if (block == nullptr) {
    return;
  }
  if (!__atomic_load_n(&new_has_header, __ATOMIC_RELAXED)) {
    on_free(kind, block, [&] { function(block, arguments...); });
    return;
  }
  ThreadState& self = self_state;
  self.sized_delete = kind == Tag::kFreeSized ? block : nullptr;
  function(block, arguments...);
  self.sized_delete = nullptr;
}

// Calls the next operator delete, and records the free if that operator does not call free.
//
// next       the operator
// kind       kFree, or kFreeSized for an operator that takes the size
// block      the block or nullptr
// arguments  the arguments after the block
template <class... Arguments>
[[gnu::always_inline]] inline void call_delete(Operator& next, Tag kind, void* block,
                                               Arguments... arguments) {
  auto* const function = next.get<void(void*, Arguments...)>();
  if (HEAPWRIGHT_UNLIKELY(!next.runtime)) {
    call_other_delete<Arguments...>(function, kind, block, arguments...);
    return;
  }
  if constexpr (kSampling) {
    if (block != nullptr) {
      on_free(kind, block, [=] { real.free(block); });
    }
    return;
  }
  if (kind == Tag::kFreeSized) {
    ThreadState& self = self_state;
    self.sized_delete = block;
    function(block, arguments...);
    self.sized_delete = nullptr;
    return;
  }
  function(block, arguments...);
}

}  // namespace

}  // namespace heapwright::recorder

using namespace heapwright::recorder;  // NOLINT(google-build-using-namespace): the operators are global

#define HEAPWRIGHT_NEXT(name) \
  static Operator next { name }

// clang-format off
HEAPWRIGHT_EXPORT void* operator new(std::size_t size) {
  HEAPWRIGHT_NEXT("_Znwm");
  return call_new(next, size, 0);
}
HEAPWRIGHT_EXPORT void* operator new[](std::size_t size) {
  HEAPWRIGHT_NEXT("_Znam");
  return call_new(next, size, 0);
}
HEAPWRIGHT_EXPORT void* operator new(std::size_t size, const std::nothrow_t& tag) noexcept {
  HEAPWRIGHT_NEXT("_ZnwmRKSt9nothrow_t");
  return call_new<const std::nothrow_t&>(next, size, 0, tag);
}
HEAPWRIGHT_EXPORT void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept {
  HEAPWRIGHT_NEXT("_ZnamRKSt9nothrow_t");
  return call_new<const std::nothrow_t&>(next, size, 0, tag);
}
HEAPWRIGHT_EXPORT void* operator new(std::size_t size, std::align_val_t alignment) {
  HEAPWRIGHT_NEXT("_ZnwmSt11align_val_t");
  return call_new(next, size, static_cast<std::size_t>(alignment), alignment);
}
HEAPWRIGHT_EXPORT void* operator new[](std::size_t size, std::align_val_t alignment) {
  HEAPWRIGHT_NEXT("_ZnamSt11align_val_t");
  return call_new(next, size, static_cast<std::size_t>(alignment), alignment);
}
HEAPWRIGHT_EXPORT void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t& tag) noexcept {
  HEAPWRIGHT_NEXT("_ZnwmSt11align_val_tRKSt9nothrow_t");
  return call_new<std::align_val_t, const std::nothrow_t&>(next, size, static_cast<std::size_t>(alignment), alignment, tag);
}
HEAPWRIGHT_EXPORT void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t& tag) noexcept {
  HEAPWRIGHT_NEXT("_ZnamSt11align_val_tRKSt9nothrow_t");
  return call_new<std::align_val_t, const std::nothrow_t&>(next, size, static_cast<std::size_t>(alignment), alignment, tag);
}
HEAPWRIGHT_EXPORT void operator delete(void* block) noexcept {
  HEAPWRIGHT_NEXT("_ZdlPv");
  call_delete(next, Tag::kFree, block);
}
HEAPWRIGHT_EXPORT void operator delete[](void* block) noexcept {
  HEAPWRIGHT_NEXT("_ZdaPv");
  call_delete(next, Tag::kFree, block);
}
HEAPWRIGHT_EXPORT void operator delete(void* block, std::size_t size) noexcept {
  HEAPWRIGHT_NEXT("_ZdlPvm");
  call_delete(next, Tag::kFreeSized, block, size);
}
HEAPWRIGHT_EXPORT void operator delete[](void* block, std::size_t size) noexcept {
  HEAPWRIGHT_NEXT("_ZdaPvm");
  call_delete(next, Tag::kFreeSized, block, size);
}
HEAPWRIGHT_EXPORT void operator delete(void* block, const std::nothrow_t& tag) noexcept {
  HEAPWRIGHT_NEXT("_ZdlPvRKSt9nothrow_t");
  call_delete<const std::nothrow_t&>(next, Tag::kFree, block, tag);
}
HEAPWRIGHT_EXPORT void operator delete[](void* block, const std::nothrow_t& tag) noexcept {
  HEAPWRIGHT_NEXT("_ZdaPvRKSt9nothrow_t");
  call_delete<const std::nothrow_t&>(next, Tag::kFree, block, tag);
}
HEAPWRIGHT_EXPORT void operator delete(void* block, std::align_val_t alignment) noexcept {
  HEAPWRIGHT_NEXT("_ZdlPvSt11align_val_t");
  call_delete(next, Tag::kFree, block, alignment);
}
HEAPWRIGHT_EXPORT void operator delete[](void* block, std::align_val_t alignment) noexcept {
  HEAPWRIGHT_NEXT("_ZdaPvSt11align_val_t");
  call_delete(next, Tag::kFree, block, alignment);
}
HEAPWRIGHT_EXPORT void operator delete(void* block, std::size_t size, std::align_val_t alignment) noexcept {
  HEAPWRIGHT_NEXT("_ZdlPvmSt11align_val_t");
  call_delete(next, Tag::kFreeSized, block, size, alignment);
}
HEAPWRIGHT_EXPORT void operator delete[](void* block, std::size_t size, std::align_val_t alignment) noexcept {
  HEAPWRIGHT_NEXT("_ZdaPvmSt11align_val_t");
  call_delete(next, Tag::kFreeSized, block, size, alignment);
}
HEAPWRIGHT_EXPORT void operator delete(void* block, std::align_val_t alignment, const std::nothrow_t& tag) noexcept {
  HEAPWRIGHT_NEXT("_ZdlPvSt11align_val_tRKSt9nothrow_t");
  call_delete<std::align_val_t, const std::nothrow_t&>(next, Tag::kFree, block, alignment, tag);
}
HEAPWRIGHT_EXPORT void operator delete[](void* block, std::align_val_t alignment, const std::nothrow_t& tag) noexcept {
  HEAPWRIGHT_NEXT("_ZdaPvSt11align_val_tRKSt9nothrow_t");
  call_delete<std::align_val_t, const std::nothrow_t&>(next, Tag::kFree, block, alignment, tag);
}
// clang-format on
