# add_module(): one static library per folder, with its unit tests in one executable.
#
#   add_module(base
#     SOURCES error.cc status.cc           # explicit; paths may go into subfolders: ops/matmul.cc
#     PUBLIC_HEADERS error.h               # installed under include/tutti/base/
#     DEPENDS tensor graph                 # other modules, PUBLIC
#     LIBRARIES absl::status fmt::fmt      # third-party, PUBLIC
#     PRIVATE_LIBRARIES dnnl::dnnl         # third-party, PRIVATE
#     APART status.cc                      # never joined with other sources, see Unity.cmake
#     TESTS error_test.cc status_test.cc   # into the executable base_test, run by CTest
#     TEST_DEPENDS testing                 # modules that only the tests need
#     TEST_LIBRARIES ZLIB::ZLIB)           # third-party that only the tests need
#
# makes the library tutti_base (alias tutti::base). TEST_ONLY marks a module that only tests may link
# (it is not installed and not part of tutti::tutti). Without SOURCES the module is header-only.
#
# add_program(NAME SOURCES ... DEPENDS ... LIBRARIES ... [INSTALL]) makes an executable in <build>/bin.
# add_program_test(TEST PROGRAM REGEX text [CODE 2] [TIMEOUT 60] [ARGUMENTS ...]) runs such a program,
# which must print what REGEX describes and exit with CODE, 0 by default. TEST is folder/name.
# add_fuzzer(NAME SOURCES ... DEPENDS ...) makes a libFuzzer program, in the preset `fuzz` only.

include(GoogleTest)

function(_tutti_module_targets out)
  list(TRANSFORM ARGN PREPEND "tutti::")
  set(${out} ${ARGN} PARENT_SCOPE)
endfunction()

function(add_module name)
  cmake_parse_arguments(
    PARSE_ARGV 1 arg "TEST_ONLY" ""
    "SOURCES;APART;PUBLIC_HEADERS;DEPENDS;LIBRARIES;PRIVATE_LIBRARIES;TESTS;TEST_DEPENDS;TEST_LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_module(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()

  if(arg_TEST_ONLY AND NOT TUTTI_TESTS)
    return()
  endif()

  set(target tutti_${name})
  _tutti_module_targets(depends ${arg_DEPENDS})
  if(arg_SOURCES)
    set(scope PUBLIC)
    add_library(${target} STATIC ${arg_SOURCES})
    target_compile_options(${target} PRIVATE ${TUTTI_WARNINGS})
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE_LIBRARIES})
    tutti_precompile(${target} library)
    tutti_unity(${target} ${arg_APART})
  else()
    set(scope INTERFACE)
    add_library(${target} INTERFACE)
  endif()
  add_library(tutti::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(
    ${target} ${scope} "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
                       "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_link_libraries(${target} ${scope} ${depends} ${arg_LIBRARIES} Threads::Threads)

  if(NOT arg_TEST_ONLY)
    target_link_libraries(tutti INTERFACE tutti::${name})
    install(TARGETS ${target} EXPORT tutti ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
            COMPONENT development)
    tutti_install_headers(${arg_PUBLIC_HEADERS})
  endif()

  if(TUTTI_TESTS AND arg_TESTS)
    _tutti_module_targets(test_depends ${arg_TEST_DEPENDS})
    add_executable(${name}_test ${arg_TESTS})
    target_compile_options(${name}_test PRIVATE ${TUTTI_WARNINGS} ${TUTTI_TEST_OPTIONS})
    tutti_precompile(${name}_test test)
    target_link_libraries(
      ${name}_test PRIVATE ${target} ${test_depends} ${arg_TEST_LIBRARIES} ${arg_PRIVATE_LIBRARIES}
                           GTest::gtest_main GTest::gmock rapidcheck rapidcheck_gtest)
    gtest_discover_tests(
      ${name}_test
      DISCOVERY_MODE PRE_TEST
      TEST_PREFIX "${name}/"
      # Values without a printer would print their bytes, other ones in each run.
      NO_PRETTY_VALUES
      PROPERTIES TIMEOUT 300 LABELS "${name}")
  endif()
endfunction()

# Installs headers of the current folder so that #include <tutti/...> reads the same as in the tree.
function(tutti_install_headers)
  foreach(header IN LISTS ARGN)
    file(RELATIVE_PATH path "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/${header}")
    get_filename_component(folder "${path}" DIRECTORY)
    install(FILES "${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${folder}"
            COMPONENT development)
    set_property(GLOBAL APPEND PROPERTY TUTTI_PUBLIC_HEADERS "${PROJECT_SOURCE_DIR}/${path}")
  endforeach()
endfunction()

function(add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INSTALL" "" "SOURCES;DEPENDS;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_program(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  # The command is called like the umbrella library, so the target of a program has a suffix.
  set(target ${name}_program)
  _tutti_module_targets(depends ${arg_DEPENDS})
  add_executable(${target} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
  target_compile_options(${target} PRIVATE ${TUTTI_WARNINGS})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${depends} ${arg_LIBRARIES})
  tutti_precompile(${target} program)
  tutti_unity(${target})
  if(arg_INSTALL)
    install(TARGETS ${target} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
  endif()
endfunction()

function(add_program_test test program)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "REGEX;CODE;TIMEOUT" "ARGUMENTS")
  if(NOT arg_REGEX OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_program_test(${test}): no REGEX, or unknown arguments: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT DEFINED arg_CODE)
    set(arg_CODE 0)
  endif()
  if(NOT DEFINED arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  get_filename_component(label "${test}" DIRECTORY)
  add_test(NAME ${test}
    COMMAND ${CMAKE_COMMAND} -DCODE=${arg_CODE} "-DREGEX=${arg_REGEX}"
            -P ${PROJECT_SOURCE_DIR}/cmake/expect_output.cmake --
            $<TARGET_FILE:${program}_program> ${arg_ARGUMENTS})
  set_tests_properties(${test} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${label}")
endfunction()

function(add_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;LIBRARIES")
  if(NOT TUTTI_FUZZERS)
    return()
  endif()
  _tutti_module_targets(depends ${arg_DEPENDS})
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin/fuzz")
  target_compile_options(${name} PRIVATE ${TUTTI_WARNINGS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${depends} ${arg_LIBRARIES})
endfunction()
