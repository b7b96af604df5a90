# Precompiled headers: the third-party and standard headers that nearly every source reads take a
# third of a clean build, so they are parsed once for all libraries and once for all programs and
# tests (which are compiled as position-independent executables: another header for the compiler).
#
# Only headers that never change with the project belong here: one of ours would rebuild everything.
# Every source still includes what it uses; the preset `clang` builds without this file and shows it.
#
#   tutti_precompile(TARGET library|program|test)

option(TUTTI_PRECOMPILE "Parse common third-party headers once (GCC only)" ON)

set(_tutti_library_headers
    <algorithm> <array> <atomic> <cstdint> <functional> <map> <memory> <mutex> <optional> <span>
    <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>
    <absl/status/status.h> <absl/status/statusor.h>)
# Tests are compiled more often than they run: half the optimisation saves a fourth of their time.
set(TUTTI_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
set(_tutti_test_headers ${_tutti_library_headers} <gtest/gtest.h> <gmock/gmock.h>)

if(TUTTI_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(_tutti_precompile TRUE)
  # What ccache asks for: https://ccache.dev/manual, "Precompiled headers".
  add_compile_options(-fpch-preprocess)
  if(CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
                                    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  endif()
else()
  set(_tutti_precompile FALSE)
endif()

function(_tutti_add_precompiled kind)
  set(target tutti_precompiled_${kind})
  set(source "${PROJECT_BINARY_DIR}/precompiled_${kind}.cc")
  file(GENERATE OUTPUT "${source}" CONTENT "int main() { return 0; }\n")
  if(kind STREQUAL "library")
    add_library(${target} OBJECT "${source}")
  else()
    add_executable(${target} "${source}")
  endif()
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE ${TUTTI_WARNINGS})
  target_link_libraries(${target} PRIVATE fmt::fmt absl::status absl::statusor Threads::Threads)
  if(kind STREQUAL "test")
    target_compile_options(${target} PRIVATE ${TUTTI_TEST_OPTIONS})
    target_link_libraries(${target} PRIVATE GTest::gtest GTest::gmock)
    target_precompile_headers(${target} PRIVATE ${_tutti_test_headers})
  else()
    target_precompile_headers(${target} PRIVATE ${_tutti_library_headers})
  endif()
endfunction()

function(tutti_precompile target kind)
  if(NOT _tutti_precompile)
    return()
  endif()
  if(NOT TARGET tutti_precompiled_${kind})
    _tutti_add_precompiled(${kind})
  endif()
  target_precompile_headers(${target} REUSE_FROM tutti_precompiled_${kind})
endfunction()
