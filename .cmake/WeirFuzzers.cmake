# One program for each tests/fuzz/NAME_fuzz.cpp (an LLVMFuzzerTestOneInput), linked with the layers
# that read what others wrote. Every other source is compiled with -fsanitize=fuzzer-no-link.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "the fuzzers need clang: use the preset `fuzz`")
endif()

file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cpp)
foreach(source ${fuzz_sources})
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${weir_libraries})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endforeach()
