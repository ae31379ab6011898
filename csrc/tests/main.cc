#include "tests/check.h"

int main() { return srl::testing::RunAll() == 0 ? 0 : 1; }
