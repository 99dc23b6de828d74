#include "base/item.h"
