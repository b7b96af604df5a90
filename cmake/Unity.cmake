# Unity builds: the compiler reads several sources of a module as one, and so parses their common
# headers once, which halves the time of a clean build. The price is that a change of one source
# compiles its whole group again. The preset `release`, which a fresh clone is built with, has unity
# builds on; `dev`, which is for working on the code, has them off.
#
# Sources of one group share their unnamed namespaces, so two that define the same name must not meet
# in one. tutti_unity() therefore looks for the names that a source defines at the start of a line, and
# gives the source to the first group that has room and none of these names. It looks when CMake runs:
# after a report of a redefinition that a later change caused, run `cmake --preset release` again. What
# it cannot see (a name that hides one of a header which another source includes) is listed under
# APART of add_module(). The presets without unity builds show that every source includes what it uses.
#
#   tutti_unity(TARGET [sources that stay apart...])

option(TUTTI_UNITY "Compile the sources of a module in groups" OFF)

set(_tutti_unity_group 8)

# Sets `out` to the names that a source defines outside of any class.
function(_tutti_defined_names source out)
  file(READ "${source}" text)
  # Up to the first parenthesis, brace, bracket, angle or equals sign after the name; CMake's lists
  # would not survive the rest of the line.
  string(REGEX MATCHALL "\n[A-Za-z][A-Za-z0-9_:<>,*& ]*[({=[]" starts "${text}")
  string(REPLACE "[" "(" starts "${starts}")
  set(names "")
  foreach(start IN LISTS starts)
    if(NOT start MATCHES "namespace"
       AND start MATCHES "[ *&>\n]([A-Za-z0-9_]+)( final)?( :[^:].*)? *[({=]$")
      list(APPEND names "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  set(${out} ${names} PARENT_SCOPE)
endfunction()

function(tutti_unity target)
  if(NOT TUTTI_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC takes a source that another one includes for a header, where members of local types are
    # suspicious.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()

  get_target_property(sources ${target} SOURCES)
  set(groups 0)
  foreach(source IN LISTS sources)
    # Highway includes such a source once more for each set of instructions.
    file(STRINGS "${source}" several_times REGEX "#define HWY_TARGET_INCLUDE" LIMIT_COUNT 1)
    if(source IN_LIST ARGN OR several_times)
      continue()
    endif()
    _tutti_defined_names("${source}" names)
    set(group 0)
    while(group LESS groups)
      set(fits TRUE)
      list(LENGTH sources_${group} size)
      if(size GREATER_EQUAL _tutti_unity_group)
        set(fits FALSE)
      endif()
      foreach(name IN LISTS names)
        if(name IN_LIST names_${group})
          set(fits FALSE)
        endif()
      endforeach()
      if(fits)
        break()
      endif()
      math(EXPR group "${group} + 1")
    endwhile()
    if(group EQUAL groups)
      math(EXPR groups "${groups} + 1")
      set(names_${group} "")
      set(sources_${group} "")
    endif()
    list(APPEND names_${group} ${names})
    list(APPEND sources_${group} "${source}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}")
  endforeach()
endfunction()
