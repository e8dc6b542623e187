# One test program for each layer, of every tests/LAYER/**/*_test.cpp; each test case is a ctest test
# named "LAYER/what it claims". The tests of the build itself are added one by one at the end.
find_package(Catch2 3 REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
include(Catch)

foreach(layer runtime transports actors adapters)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${layer}/*_test.cpp)
  if(sources AND TARGET weir_${layer})
    add_executable(weir_${layer}_tests ${sources})
    target_link_libraries(weir_${layer}_tests PRIVATE weir_${layer} Catch2::Catch2WithMain)
    # A test that hangs is a failure long before ctest's own 25 minutes.
    catch_discover_tests(weir_${layer}_tests
      TEST_PREFIX "${layer}/" PROPERTIES TIMEOUT 300 LABELS ${layer} DISCOVERY_TIMEOUT 120)
  endif()
endforeach()
