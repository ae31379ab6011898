#include "pool/pool.h"
