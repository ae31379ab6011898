#include "srl/export_plugin.h"

SRL_EXPORT_PLUGIN;
