# Runs `program` and compares what it prints with the file `expected`.
execute_process(COMMAND ${program} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
file(READ ${expected} expected_output)
if(NOT output STREQUAL expected_output)
  message(FATAL_ERROR "printed:\n${output}instead of:\n${expected_output}")
endif()
