// Until pool.h includes it under its public name.
#pragma once
#include "srl/environment.h"
