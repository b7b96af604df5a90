# make docs: Doxygen over the public headers, into <build>/docs/index.html. A warning is an error.

get_property(_tutti_headers GLOBAL PROPERTY TUTTI_PUBLIC_HEADERS)
list(TRANSFORM _tutti_headers PREPEND "\"")
list(TRANSFORM _tutti_headers APPEND "\"")
list(JOIN _tutti_headers " " TUTTI_DOCUMENTED_HEADERS)
configure_file(cmake/Doxyfile.in "${PROJECT_BINARY_DIR}/Doxyfile" @ONLY)

find_program(TUTTI_DOXYGEN doxygen)
if(TUTTI_DOXYGEN)
  add_custom_target(docs COMMAND "${TUTTI_DOXYGEN}" "${PROJECT_BINARY_DIR}/Doxyfile" VERBATIM)
  if(TUTTI_TESTS)
    add_test(NAME docs/reference COMMAND "${TUTTI_DOXYGEN}" "${PROJECT_BINARY_DIR}/Doxyfile")
    set_tests_properties(docs/reference PROPERTIES TIMEOUT 300 LABELS docs)
  endif()
endif()
