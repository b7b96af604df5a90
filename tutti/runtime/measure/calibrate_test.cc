#include "tutti/runtime/measure/calibrate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tutti/kernels/register.h"
#include "tutti/runtime/register.h"
#include "tutti/testing/temporary_directory.h"

namespace tutti {
namespace {

TEST(Calibrate, MeasuresEveryKindThatItAsksFor) {
  RegisterCpuKernels();
  RegisterRuntimeKernels();
  const auto speed = MeasureMachine();
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_GT(speed->node_seconds, 0);
  EXPECT_GT(speed->same_task.latency, 0);
  for (int i = 0; i < placement::kWorkKinds; ++i) {
    const auto kind = placement::WorkKind(i);
    if (kind == placement::WorkKind::kNone) continue;
    const placement::KindSpeed& found = speed->kinds[size_t(i)];
    EXPECT_GT(found.per_operation + found.per_byte_cached, 0) << placement::NameOf(kind);
  }
}

// XDG_CACHE_HOME for as long as it lives.
class CacheHome {
 public:
  explicit CacheHome(const std::string& path) {
    if (const char* const before = std::getenv(kVariable)) before_ = before;
    ::setenv(kVariable, path.c_str(), /*overwrite=*/1);
  }
  ~CacheHome() {
    if (before_) {
      ::setenv(kVariable, before_->c_str(), /*overwrite=*/1);
    } else {
      ::unsetenv(kVariable);
    }
  }

 private:
  static constexpr const char* kVariable = "XDG_CACHE_HOME";
  std::optional<std::string> before_;
};

TEST(Calibrate, FiguresAreKeptForADay) {
  RegisterCpuKernels();
  RegisterRuntimeKernels();
  const testing::TemporaryDirectory folder;
  const CacheHome home(folder.path() + "/cache");
  const std::string path = SpeedCacheFile();
  ASSERT_TRUE(path.starts_with(folder.path() + "/cache/tutti/speed-")) << path;
  // There is no folder yet: it is made.
  const std::string measured = SpeedKeptIn(path).ToJson();
  const auto text = [&] {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
  };
  EXPECT_EQ(text(), measured);

  // What is there is believed, whatever it says.
  placement::MachineSpeed odd = placement::MachineSpeed::Typical();
  odd.node_seconds = 0.125;
  const auto write = [&](const std::string& line) { std::ofstream(path) << line << "\n"; };
  write(odd.ToJson());
  EXPECT_EQ(SpeedKeptIn(path).node_seconds, 0.125);
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(path, now - std::chrono::hours(23));
  EXPECT_EQ(SpeedKeptIn(path).node_seconds, 0.125);
  EXPECT_EQ(text(), odd.ToJson()) << "reading does not write";

  // Older figures, and what cannot be read, are measured anew and replaced.
  std::filesystem::last_write_time(path, now - std::chrono::hours(25));
  EXPECT_LT(SpeedKeptIn(path).node_seconds, 0.125);
  EXPECT_NE(text(), odd.ToJson());
  for (const char* broken : {"{\"node_seconds\": 0.125", "", "[1, 2]", "no json"}) {
    SCOPED_TRACE(broken);
    write(broken);
    const placement::MachineSpeed found = SpeedKeptIn(path);
    EXPECT_LT(found.node_seconds, 0.125);
    EXPECT_EQ(text(), found.ToJson());
  }
}

TEST(Calibrate, NothingIsKeptWithoutAHome) {
  RegisterCpuKernels();
  RegisterRuntimeKernels();
  EXPECT_GT(SpeedKeptIn("").node_seconds, 0);
  // A folder that cannot be made costs nothing but the measurement.
  EXPECT_GT(SpeedKeptIn("/proc/no/such/folder/speed.json").node_seconds, 0);
}

}  // namespace
}  // namespace tutti
