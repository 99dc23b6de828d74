#include "base/tree.h"
