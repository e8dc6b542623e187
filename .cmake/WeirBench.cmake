# One program for each bench/NAME_bench.cpp; the other files there are part of every one.
file(GLOB bench_shared CONFIGURE_DEPENDS bench/*.cpp)
set(bench_sources ${bench_shared})
list(FILTER bench_sources INCLUDE REGEX "_bench\\.cpp$")
list(FILTER bench_shared EXCLUDE REGEX "_bench\\.cpp$")

add_custom_target(weir_benches)
foreach(source ${bench_sources})
  cmake_path(GET source STEM name)
  add_executable(${name} ${source} ${bench_shared})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${weir_libraries} nlohmann_json::nlohmann_json)
  add_dependencies(weir_benches ${name})
endforeach()
