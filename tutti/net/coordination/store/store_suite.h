#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "tutti/net/coordination/store/store.h"

// What every Store must do, whatever stands behind it. A test program compiles store_suite.cc and
// says over which stores it runs:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreSuite, testing::Values(StoreUnderTest{...}));
namespace tutti::net {

struct StoreUnderTest {
  std::string name;
  // An empty store. Null, with a message in `skip`, where this machine has none.
  std::function<std::shared_ptr<Store>(std::string* skip)> make;
  double short_lease = 0.05;  // the shortest that it grants

  friend std::ostream& operator<<(std::ostream& out, const StoreUnderTest& store) {
    return out << store.name;
  }
};

class StoreSuite : public testing::TestWithParam<StoreUnderTest> {
 protected:
  void SetUp() override {
    std::string skip;
    store_ = GetParam().make(&skip);
    if (store_ == nullptr) GTEST_SKIP() << skip;
  }

  std::shared_ptr<Store> store_;
};

}  // namespace tutti::net
