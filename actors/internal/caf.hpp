#pragma once
// The one door to CAF: some of its headers do not compile alone, so all come from here.

#include <utility>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
