# What the configured tree will have, what it will not, and which package would bring that in.

# Optional parts are looked for here. Nothing uses them yet: a part that is found says so.
find_package(CUDAToolkit QUIET)
find_path(NCCL_INCLUDE_DIR nccl.h)
find_library(NCCL_LIBRARY nccl)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

set(summary_in)
set(summary_out)
# A part is in when every variable named after `otherwise` is true; else `otherwise` says what to
# do.
function(summarize part otherwise)
  foreach(variable ${ARGN})
    if(NOT ${variable})
      set(summary_out ${summary_out} "${part}: ${otherwise}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(summary_in ${summary_in} "${part}" PARENT_SCOPE)
endfunction()

summarize("runtime, adapters, shared-memory transport" "")
summarize("RDMA transport" "comes with libibverbs-dev and librdmacm-dev" WEIR_RDMA)
summarize("actors, over CAF" "turned off by WEIR_ACTORS" WEIR_ACTORS)
summarize("tests" "turned off by BUILD_TESTING" BUILD_TESTING)
summarize("fuzzers" "turned off by WEIR_FUZZERS" WEIR_FUZZERS)
summarize("compiler cache" "comes with the package ccache" CCACHE)
summarize("CUDA (nothing uses it yet)" "comes with nvidia-cuda-toolkit (non-free)"
          CUDAToolkit_FOUND)
summarize("NCCL (nothing uses it yet)" "comes with libnccl-dev (contrib)"
          NCCL_INCLUDE_DIR NCCL_LIBRARY)

message(STATUS "Weir ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, "
               "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS}")
foreach(line ${summary_in})
  message(STATUS "  in   ${line}")
endforeach()
foreach(line ${summary_out})
  message(STATUS "  out  ${line}")
endforeach()
