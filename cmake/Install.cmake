# cmake --install: libraries, public headers, and the package that find_package(tutti) reads.

include(CMakePackageConfigHelpers)

set(TUTTI_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/tutti")

if(EXISTS "${PROJECT_SOURCE_DIR}/tutti/tutti.h")
  tutti_install_headers(tutti/tutti.h)
endif()
target_include_directories(
  tutti INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
                  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
install(TARGETS tutti EXPORT tutti COMPONENT development)
install(EXPORT tutti NAMESPACE tutti:: FILE tuttiTargets.cmake DESTINATION "${TUTTI_PACKAGE_DIR}"
        COMPONENT development)

configure_package_config_file(
  cmake/tuttiConfig.cmake.in "${PROJECT_BINARY_DIR}/tuttiConfig.cmake"
  INSTALL_DESTINATION "${TUTTI_PACKAGE_DIR}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/tuttiConfig.cmake"
        "${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake"
        cmake/Dependencies.cmake
        cmake/FindOneDNN.cmake
  DESTINATION "${TUTTI_PACKAGE_DIR}"
  COMPONENT development)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        COMPONENT program)
