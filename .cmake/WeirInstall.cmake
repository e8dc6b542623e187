# `cmake --install`: headers by layer, the static libraries, the CMake package and the program.
include(CMakePackageConfigHelpers)

# Everything, for whoever says target_link_libraries(mine PRIVATE weir::weir).
add_library(weir_all INTERFACE)
set_target_properties(weir_all PROPERTIES EXPORT_NAME weir)
target_link_libraries(weir_all INTERFACE ${weir_libraries})
add_library(weir::weir ALIAS weir_all)

set(weir_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weir)
install(TARGETS ${weir_libraries} weir_all EXPORT weirTargets)
install(EXPORT weirTargets NAMESPACE weir:: DESTINATION ${weir_cmake_dir})

set(layers schemas runtime transports adapters)
if(WEIR_ACTORS)
  list(APPEND layers actors)
endif()
foreach(layer ${layers})
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${layer})
    install(DIRECTORY ${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weir
      FILES_MATCHING PATTERN "*.hpp" PATTERN "*.capnp"
      PATTERN "internal" EXCLUDE PATTERN "cli" EXCLUDE)
  endif()
endforeach()
install(FILES ${schema_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weir/schemas)

configure_package_config_file(.cmake/weirConfig.cmake.in weirConfig.cmake
  INSTALL_DESTINATION ${weir_cmake_dir})
write_basic_package_version_file(weirConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weirConfig.cmake ${PROJECT_BINARY_DIR}/weirConfigVersion.cmake
              .cmake/FindCAF.cmake
        DESTINATION ${weir_cmake_dir})

if(TARGET weir)
  install(TARGETS weir)
endif()
