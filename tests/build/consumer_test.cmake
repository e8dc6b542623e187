# Installs the build in the folder `build` into an empty prefix, then configures, builds and runs
# the program in consumer/ against that prefix alone, with the same `compiler` and `flags`: static
# libraries of a sanitized build need a sanitized program.
set(scratch ${build}/consumer_test)
file(REMOVE_RECURSE ${scratch})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE output)
  set(output ${output} PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${build} --prefix ${scratch}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${scratch}/build -G Ninja
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_CXX_FLAGS=${flags}
  -D CMAKE_PREFIX_PATH=${scratch}/prefix)
run(${CMAKE_COMMAND} --build ${scratch}/build)
run(${scratch}/build/consumer)
if(NOT output STREQUAL "bf16\n")
  message(FATAL_ERROR "the consumer printed: ${output}")
endif()

if(EXISTS ${build}/weir)
  run(${scratch}/prefix/bin/weir --help)
endif()
file(REMOVE_RECURSE ${scratch})
