// The five calls of PMIx that a job needs to meet. Every process says that it is there (Init),
// process 0 puts its text under a key, all wait for each other (Fence, which also collects the
// data), all get process 0's text, and say that they need the launcher no more (Finalize): without
// that, a process that ends is taken for one that has crashed.
#include <dlfcn.h>
#include <pmix.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tutti/base/status.h"
#include "tutti/cluster/environment/pmix_client.h"

namespace tutti::pmix {
namespace {

constexpr const char* kName = "libpmix.so.2";
constexpr const char* kKey = "tutti-meeting";

struct Library {
  decltype(&::PMIx_Init) init = nullptr;
  decltype(&::PMIx_Put) put = nullptr;
  decltype(&::PMIx_Commit) commit = nullptr;
  decltype(&::PMIx_Fence) fence = nullptr;
  decltype(&::PMIx_Get) get = nullptr;
  decltype(&::PMIx_Finalize) finalize = nullptr;
  decltype(&::PMIx_Error_string) error_string = nullptr;
};

template <typename Function>
bool Find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

absl::StatusOr<Library> LoadNow() {
  // Global, because plug-ins of the library refer to it.
  void* const handle = dlopen(kName, RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    return FailedPrecondition("PMIx cannot be loaded: {} (Debian: libpmix2)", dlerror());
  }
  Library library;
  if (!Find(handle, "PMIx_Init", &library.init) || !Find(handle, "PMIx_Put", &library.put) ||
      !Find(handle, "PMIx_Commit", &library.commit) ||
      !Find(handle, "PMIx_Fence", &library.fence) || !Find(handle, "PMIx_Get", &library.get) ||
      !Find(handle, "PMIx_Finalize", &library.finalize) ||
      !Find(handle, "PMIx_Error_string", &library.error_string)) {
    return FailedPrecondition("PMIx cannot be used: {} lacks a function: {}", kName, dlerror());
  }
  return library;
}

const absl::StatusOr<Library>& Loaded() {
  static const absl::StatusOr<Library> library = LoadNow();
  return library;
}

class Session {
 public:
  explicit Session(const Library& library) : library_(library) {}
  ~Session() {
    if (open_) library_.finalize(nullptr, 0);
  }

  absl::Status Open() {
    TUTTI_RETURN_IF_ERROR(Check("PMIx_Init", library_.init(&self_, nullptr, 0)));
    open_ = true;
    return absl::OkStatus();
  }

  absl::Status Put(const std::string& text) {
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = const_cast<char*>(text.c_str());
    TUTTI_RETURN_IF_ERROR(Check("PMIx_Put", library_.put(PMIX_GLOBAL, kKey, &value)));
    return Check("PMIx_Commit", library_.commit());
  }

  absl::Status Fence() {
    pmix_info_t collect{};
    std::strncpy(collect.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    return Check("PMIx_Fence", library_.fence(nullptr, 0, &collect, 1));
  }

  absl::StatusOr<std::string> Get() {
    pmix_proc_t first = self_;
    first.rank = 0;
    pmix_value_t* value = nullptr;
    TUTTI_RETURN_IF_ERROR(Check("PMIx_Get", library_.get(&first, kKey, nullptr, 0, &value)));
    if (value == nullptr || value->type != PMIX_STRING || value->data.string == nullptr) {
      return Unavailable("PMIx_Get: process 0 has told something else than a text");
    }
    std::string text = value->data.string;
    std::free(value->data.string);
    std::free(value);
    return text;
  }

 private:
  absl::Status Check(const char* what, pmix_status_t status) const {
    if (status == PMIX_SUCCESS) return absl::OkStatus();
    return Unavailable("{}: {}; with TUTTI_PMIX=off the processes meet without PMIx", what,
                       library_.error_string(status));
  }

  const Library& library_;
  pmix_proc_t self_{};
  bool open_ = false;
};

}  // namespace

absl::Status Load() { return Loaded().status(); }

absl::StatusOr<std::string> Tell(int rank, const std::string& tell) {
  TUTTI_RETURN_IF_ERROR(Load());
  Session session(*Loaded());
  TUTTI_RETURN_IF_ERROR(session.Open());
  if (rank == 0) TUTTI_RETURN_IF_ERROR(session.Put(tell));
  TUTTI_RETURN_IF_ERROR(session.Fence());
  return session.Get();
}

}  // namespace tutti::pmix
