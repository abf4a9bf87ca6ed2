// Checks of test programs: the first that does not hold ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                      \
  if (!(condition)) {                                                         \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
    std::exit(1);                                                             \
  }
