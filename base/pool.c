#include "base/pool.h"
