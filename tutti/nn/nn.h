#pragma once

// All layers: functions that take outputs of a graph, make the variables they need, and return
// outputs. Write them with their namespace, nn::Dropout: some share their name with the op below.

#include "tutti/nn/activation.h"
#include "tutti/nn/attention.h"
#include "tutti/nn/conv.h"
#include "tutti/nn/dense.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/flatten.h"
#include "tutti/nn/initializers.h"
#include "tutti/nn/layer.h"
#include "tutti/nn/losses.h"
#include "tutti/nn/norm.h"
#include "tutti/nn/pool.h"
#include "tutti/nn/sample_scope.h"
#include "tutti/nn/seed.h"
#include "tutti/nn/variables.h"
