#pragma once

#include <string_view>

#include "tutti/nn/initializers.h"

namespace tutti::nn {

struct AttentionOptions {
  int64_t heads = 1;     // must divide the width
  Output keys = {};      // [batch, length, any]: where keys and values come from; empty: x itself
  Output mask = {};      // bool, broadcast to [batch, heads, queries, keys]: may query see key?
  bool causal = false;   // a query sees keys up to its own position only
  double dropout = 0;    // of the attention weights
  bool training = true;  // false: no dropout
  // Position and step of the dropout, as in DropoutLayerOptions.
  Output first_sample = {};
  Output step = {};
  bool bias = true;
  InitializerOf weights = GlorotUniform;
};

// Multi-head scaled dot-product attention (Vaswani et al. 2017): x [batch, queries, width] looks at
// itself, or at options.keys, through `heads` heads of width / heads each, and gives [batch,
// queries, width]. Dense layers "query", "key", "value" and "output". The widths must be known. A
// query for which the mask allows no key gets the mean of all values.
Output MultiHeadAttention(Input x, const AttentionOptions& options,
                          std::string_view name = "attention");

}  // namespace tutti::nn
