# One test program for each layer, of every tests/LAYER/**/*_test.cpp; each test case is a ctest
# test named "LAYER/what it claims".
find_package(Catch2 3 REQUIRED)
include(Catch)

option(WEIR_THREADED_TESTS_ONLY "Of the tests, only those of what uses threads" OFF)

# Leaves those tests in the list that use threads, locks or atomics themselves or through the source
# that they mirror: the thread sanitizer has nothing to see in the others, and takes long over them.
function(weir_keep_threaded list_name)
  set(kept)
  foreach(test ${${list_name}})
    string(REGEX REPLACE "/tests/(.*)_test\\.cpp$" "/\\1" subject ${test})
    foreach(file ${test} ${subject}.cpp ${subject}.hpp)
      if(EXISTS ${file})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        file(STRINGS ${file} includes REGEX
          "#include (<(thread|mutex|condition_variable|atomic|future)>|\"runtime/workers.hpp\")")
        if(includes)
          list(APPEND kept ${test})
          break()
        endif()
      endif()
    endforeach()
  endforeach()
  set(${list_name} ${kept} PARENT_SCOPE)
endfunction()

add_custom_target(weir_tests)

# weir_test_layer(LAYER FOLDER): the tests under tests/FOLDER, which see the library weir_LAYER.
function(weir_test_layer layer folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${folder}/*_test.cpp)
  if(NOT layer STREQUAL cli)
    list(FILTER sources EXCLUDE REGEX "tests/adapters/cli/|tests/transports/rdma/vm/")
  endif()
  if(WEIR_THREADED_TESTS_ONLY AND NOT layer MATCHES "transports|actors")
    weir_keep_threaded(sources)
  endif()
  if(WEIR_THREADED_TESTS_ONLY AND layer STREQUAL actors)
    # The others run actors in one thread and virtual time.
    list(FILTER sources INCLUDE REGEX "/(real_sockets|member|hostile)_test\\.cpp$")
  endif()
  if(sources AND TARGET weir_${layer})
    add_executable(weir_${layer}_tests ${sources})
    target_link_libraries(weir_${layer}_tests PRIVATE weir_${layer} Catch2::Catch2WithMain)
    # A test runs once for each time it is compiled; optimizing one takes longer than it saves.
    target_compile_options(weir_${layer}_tests PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O0>)
    add_dependencies(weir_tests weir_${layer}_tests)
    # A test that hangs is a failure long before ctest's own 25 minutes.
    catch_discover_tests(weir_${layer}_tests TEST_PREFIX "${layer}/" DISCOVERY_TIMEOUT 120
      PROPERTIES TIMEOUT 300 LABELS ${layer})
  endif()
endfunction()

foreach(layer runtime transports actors adapters)
  weir_test_layer(${layer} ${layer})
endforeach()

if(TARGET weir_transports_tests)
  # The transport contract, and the far end of its tests: a process of its own.
  target_sources(weir_transports_tests PRIVATE tests/transports/transport_contract.cpp
    tests/transports/contract_rig.cpp tests/transports/peer_process.cpp)
  add_executable(weir_transport_peer tests/transports/peer_main.cpp)
  target_link_libraries(weir_transport_peer PRIVATE weir_transports)
  target_compile_definitions(weir_transports_tests PRIVATE
    WEIR_TRANSPORT_PEER="$<TARGET_FILE:weir_transport_peer>")
  add_dependencies(weir_transports_tests weir_transport_peer)
endif()

if(TARGET weir_transports_tests AND WEIR_RDMA)
  # Needs RDMA devices, and the cables of the virtual machine: tests/rdma/run_in_vm.sh runs it, and
  # ctest does not.
  file(GLOB rdma_sources CONFIGURE_DEPENDS tests/transports/rdma/vm/*_test.cpp)
  add_executable(weir_rdma_tests ${rdma_sources} tests/transports/transport_contract.cpp
    tests/transports/contract_rig.cpp tests/transports/peer_process.cpp)
  target_link_libraries(weir_rdma_tests PRIVATE weir_transports Catch2::Catch2WithMain)
  target_compile_definitions(weir_rdma_tests PRIVATE
    WEIR_TRANSPORT_PEER="$<TARGET_FILE:weir_transport_peer>")
  add_dependencies(weir_rdma_tests weir_transport_peer)
  add_dependencies(weir_tests weir_rdma_tests)
endif()

if(TARGET weir_actors_tests AND NOT WEIR_THREADED_TESTS_ONLY)
  # The model that the decisions are run in, without actors.
  target_sources(weir_actors_tests PRIVATE tests/actors/states_world.cpp
    tests/actors/states_world_members.cpp)
endif()

if(TARGET weir_adapters_tests)
  # What real engines keep, as tests/engines took it from them.
  set_source_files_properties(
    tests/adapters/engines/golden_test.cpp tests/adapters/engines/conversions_test.cpp PROPERTIES
    COMPILE_DEFINITIONS WEIR_GOLDEN_FOLDER="${PROJECT_SOURCE_DIR}/tests/engines/golden")
  set_source_files_properties(tests/adapters/layouts/described_test.cpp PROPERTIES
    COMPILE_DEFINITIONS WEIR_LAYOUTS_FOLDER="${PROJECT_SOURCE_DIR}/examples/layouts")
endif()

# The programs that tests/python drives, one for each source.
file(GLOB python_sources CONFIGURE_DEPENDS tests/python/*.cpp)
foreach(source ${python_sources})
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE weir_adapters)
endforeach()

weir_test_layer(cli adapters/cli)
if(TARGET weir_cli_tests)
  # These also run the program itself.
  target_compile_definitions(weir_cli_tests PRIVATE WEIR_PROGRAM="$<TARGET_FILE:weir>")
  add_dependencies(weir_cli_tests weir)
endif()

if(NOT WEIR_THREADED_TESTS_ONLY)
  add_subdirectory(tests/build)
endif()
