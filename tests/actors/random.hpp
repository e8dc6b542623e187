#pragma once
// Numbers that a seed decides, where tests of actors look for them.

#include "runtime/random.hpp"
