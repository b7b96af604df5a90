# cmake -DTUTTI_BUILD=... -DOUTSIDE_SOURCE=... -DWORK=... -DCOMPILER=... -DGENERATOR=... -P this file

set(prefix "${WORK}/prefix")
set(outside "${WORK}/outside")
file(REMOVE_RECURSE "${prefix}" "${outside}")

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run("${CMAKE_COMMAND}" --install "${TUTTI_BUILD}" --prefix "${prefix}")
run("${CMAKE_COMMAND}" -S "${OUTSIDE_SOURCE}" -B "${outside}" -G "${GENERATOR}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}")
run("${CMAKE_COMMAND}" --build "${outside}")
run("${outside}/app")
