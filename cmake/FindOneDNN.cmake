# Finds oneDNN 2.x and makes the imported target dnnl::dnnl.
# The library's own package file insists on OpenCL even where it was built without it.

find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(OneDNN_LIBRARY dnnl)
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)

if(OneDNN_INCLUDE_DIR AND EXISTS "${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
  set(_onednn_version "")
  foreach(_part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS "${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" _line
         REGEX "#define DNNL_VERSION_${_part} +[0-9]+")
    string(REGEX REPLACE ".* ([0-9]+).*" "\\1" _number "${_line}")
    list(APPEND _onednn_version "${_number}")
  endforeach()
  list(JOIN _onednn_version "." OneDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  OneDNN
  REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR
  VERSION_VAR OneDNN_VERSION)

if(OneDNN_FOUND AND NOT TARGET dnnl::dnnl)
  add_library(dnnl::dnnl UNKNOWN IMPORTED)
  set_target_properties(
    dnnl::dnnl PROPERTIES IMPORTED_LOCATION "${OneDNN_LIBRARY}"
                          INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
endif()
