#pragma once

#include "tutti/graph/build.h"

// Stand-ins for builders of graph/ops, until those headers declare them.
namespace tutti::pending {

inline Output Mul(Input a, Input b) { return OpBuilder("Mul", "").In(a).In(b).Build(); }
inline Output Div(Input a, Input b) { return OpBuilder("Div", "").In(a).In(b).Build(); }
inline Output Add(Input a, Input b) { return OpBuilder("Add", "").In(a).In(b).Build(); }
inline Output Sub(Input a, Input b) { return OpBuilder("Sub", "").In(a).In(b).Build(); }
inline Output Equal(Input a, Input b) { return OpBuilder("Equal", "").In(a).In(b).Build(); }
inline Output Exp(Input x) { return OpBuilder("Exp", "").In(x).Build(); }
inline Output Neg(Input x) { return OpBuilder("Neg", "").In(x).Build(); }
inline Output Sign(Input x) { return OpBuilder("Sign", "").In(x).Build(); }
inline Output Identity(Input x) { return OpBuilder("Identity", "").In(x).Build(); }
inline Output Rsqrt(Input x) { return OpBuilder("Rsqrt", "").In(x).Build(); }
inline Output Size(Input x) { return OpBuilder("Size", "").In(x).Build(); }
inline Output Sigmoid(Input x) { return OpBuilder("Sigmoid", "").In(x).Build(); }
inline Output Cast(Input x, DType dtype) {
  return OpBuilder("Cast", "").In(x).Attr("dtype", dtype).Build();
}

}  // namespace tutti::pending
