# make package: two Debian packages, by CPack. `tutti` has the command, `libtutti-dev` headers and
# static libraries. What the command links is found by dpkg-shlibdeps; what a user's link needs are
# the development packages of scripts/packages.txt.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_VENDOR "Tutti")
set(CPACK_PACKAGE_CONTACT "Tutti developers <tutti@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_LICENSE Apache-2.0)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME tutti)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "${PROJECT_DESCRIPTION}
 The command tutti: starts the tasks of a job, serves the devices of one, measures,
 inspects checkpoints and runs exported models.")

# The lines "lib...-dev  # why" of the list of packages, and headers that are packages of their own.
file(STRINGS scripts/packages.txt _tutti_needed REGEX "-dev |^pkg-config ")
list(TRANSFORM _tutti_needed REPLACE " .*" "")
list(REMOVE_ITEM _tutti_needed libcli11-dev)
list(JOIN _tutti_needed ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtutti-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${PROJECT_DESCRIPTION}
 Headers, static libraries and the CMake package: find_package(tutti).")

include(CPack)
