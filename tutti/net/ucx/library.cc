#include "tutti/net/ucx/library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "tutti/base/status.h"

namespace tutti::net::ucx {
namespace {

constexpr const char* kName = "libucp.so.0";

// dlsym's result as a pointer to a function.
template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// What UCX does to a whole process by itself, and what Tutti's programs do in their own way: it
// takes over the signals of crashes, and writes a line about every peer that dies. UCX_LOG_LEVEL of
// the environment beats this.
void MakeQuiet(void* library) {
  void (*disable_signals)() = nullptr;
  if (Find(library, "ucs_debug_disable_signals", &disable_signals)) disable_signals();
  ucs_status_t (*set_option)(const char*, const char*) = nullptr;
  if (std::getenv("UCX_LOG_LEVEL") == nullptr &&
      Find(library, "ucs_global_opts_set_value", &set_option)) {
    set_option("LOG_LEVEL", "fatal");
  }
}

absl::StatusOr<const Library*> LoadNow() {
  void* const handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return FailedPrecondition(
        "UCX cannot be loaded: {}; install it (Debian: libucx0), or use another transport",
        dlerror());
  }
  static Library library;
  const char* missing = nullptr;
#define TUTTI_UCP_FIND(name) \
  if (!Find(handle, "ucp_" #name, &library.name)) missing = "ucp_" #name;
  TUTTI_UCP_FUNCTIONS(TUTTI_UCP_FIND)
#undef TUTTI_UCP_FIND
  if (!Find(handle, "ucs_status_string", &library.status_string)) missing = "ucs_status_string";
  if (missing != nullptr) {
    return FailedPrecondition("{} has no {}; UCX {}.{} or later is needed", kName, missing,
                              UCP_API_MAJOR, UCP_API_MINOR);
  }
  MakeQuiet(handle);
  return &library;
}

}  // namespace

absl::StatusOr<const Library*> Library::Load() {
  static const absl::StatusOr<const Library*> loaded = LoadNow();
  return loaded;
}

}  // namespace tutti::net::ucx
