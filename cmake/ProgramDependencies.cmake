# What only tools, tests and benchmarks need; never part of the installed package.

find_package(CLI11 CONFIG REQUIRED)
if(TUTTI_TESTS)
  find_package(GTest CONFIG REQUIRED)
  find_package(rapidcheck CONFIG REQUIRED)
  find_package(benchmark CONFIG REQUIRED)
endif()
