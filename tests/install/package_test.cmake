# cmake -DTUTTI_BUILD=... -DVERSION=... -DOUTSIDE_SOURCE=... -DWORK=... -DCOMPILER=... -DFLAGS=...
#       -DGENERATOR=... -P this file
# Makes the Debian packages, unpacks them into a folder of their own, runs the command there, and
# builds and runs a project against the headers and libraries there.

set(packages "${WORK}/packages")
set(root "${WORK}/package_root")
set(outside "${WORK}/package_outside")
file(REMOVE_RECURSE "${packages}" "${root}" "${outside}")

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Fails unless the command prints `expected`, and nothing else.
function(expect expected)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE got OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  if(NOT got STREQUAL expected)
    message(FATAL_ERROR "${ARGN} printed \"${got}\", expected \"${expected}\"")
  endif()
endfunction()

run("${CMAKE_CPACK_COMMAND}" --config "${TUTTI_BUILD}/CPackConfig.cmake" -B "${packages}")
foreach(name IN ITEMS tutti libtutti-dev)
  file(GLOB file "${packages}/${name}_${VERSION}_*.deb")
  list(LENGTH file count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "expected one package ${name}_${VERSION}_*.deb in ${packages}, got: ${file}")
  endif()
  expect("${VERSION}" dpkg-deb -f "${file}" Version)
  run(dpkg-deb -x "${file}" "${root}")
endforeach()

expect("tutti ${VERSION}" "${root}/usr/bin/tutti" --version)
run("${CMAKE_COMMAND}" -S "${OUTSIDE_SOURCE}" -B "${outside}" -G "${GENERATOR}"
    "-DCMAKE_PREFIX_PATH=${root}/usr" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_CXX_FLAGS=${FLAGS}")
run("${CMAKE_COMMAND}" --build "${outside}")
run("${outside}/app")
