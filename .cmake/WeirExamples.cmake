# One program for each examples/NAME.cpp. A test compares what it prints with examples/NAME.txt.
file(GLOB example_sources CONFIGURE_DEPENDS examples/*.cpp)
foreach(source ${example_sources})
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${weir_libraries})
endforeach()
