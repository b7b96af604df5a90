#pragma once

#include <span>
#include <string_view>

#include "tutti/graph/input.h"

// Arithmetic, comparison and logic by element; Select, Cast, Clip.
//
// Functions of several values broadcast as NumPy does: shapes are aligned at their last dimension,
// and a dimension of 1, or one that is missing, is repeated. All values of one call have the same
// dtype; C++ numbers take it. 16-bit floats are computed in float32. Integers wrap around on
// overflow; dividing one by zero is an INVALID_ARGUMENT when it runs.
namespace tutti {

// a + b, a - b, a * b of numbers.
Output Add(Input a, Input b, std::string_view name = "");
Output Sub(Input a, Input b, std::string_view name = "");
Output Mul(Input a, Input b, std::string_view name = "");
// a / b; of integers, rounded towards zero as in C++.
Output Div(Input a, Input b, std::string_view name = "");
// FloorDiv: the largest integer not above a / b. Mod: the rest, a - FloorDiv(a, b) * b, which
// has the sign of b.
Output FloorDiv(Input a, Input b, std::string_view name = "");
Output Mod(Input a, Input b, std::string_view name = "");
// a to the power of b. A negative power of an integer is an INVALID_ARGUMENT when it runs.
Output Pow(Input a, Input b, std::string_view name = "");
Output Maximum(Input a, Input b, std::string_view name = "");            // NaN if either is
Output Minimum(Input a, Input b, std::string_view name = "");            // NaN if either is
Output SquaredDifference(Input a, Input b, std::string_view name = "");  // (a - b)^2

// The sum of one or more values of one shape.
Output AddN(std::span<const Output> values, std::string_view name = "");

Output Neg(Input x, std::string_view name = "");  // x is signed
Output Abs(Input x, std::string_view name = "");
Output Sign(Input x, std::string_view name = "");  // -1, 0 or 1; NaN of NaN
Output Square(Input x, std::string_view name = "");

// Of floating-point values.
Output Sqrt(Input x, std::string_view name = "");
Output Rsqrt(Input x, std::string_view name = "");  // 1 / sqrt(x)
Output Exp(Input x, std::string_view name = "");
Output Log(Input x, std::string_view name = "");
Output Log1p(Input x, std::string_view name = "");  // log(1 + x), precise for small x
Output Sin(Input x, std::string_view name = "");
Output Cos(Input x, std::string_view name = "");
Output Erf(Input x, std::string_view name = "");
Output Floor(Input x, std::string_view name = "");
Output Ceil(Input x, std::string_view name = "");
Output Round(Input x, std::string_view name = "");     // to the nearest; halves to the even one
Output IsFinite(Input x, std::string_view name = "");  // bool: neither infinite nor NaN

// Comparisons give bool. Equal and NotEqual also take bool.
Output Greater(Input a, Input b, std::string_view name = "");
Output GreaterEqual(Input a, Input b, std::string_view name = "");
Output Less(Input a, Input b, std::string_view name = "");
Output LessEqual(Input a, Input b, std::string_view name = "");
Output Equal(Input a, Input b, std::string_view name = "");
Output NotEqual(Input a, Input b, std::string_view name = "");

// Of bool.
Output LogicalAnd(Input a, Input b, std::string_view name = "");
Output LogicalOr(Input a, Input b, std::string_view name = "");
Output LogicalNot(Input x, std::string_view name = "");

// a where condition (bool), else b; all three broadcast.
Output Select(Input condition, Input a, Input b, std::string_view name = "");

// x converted to another dtype. A floating-point value is truncated towards zero and clamped to the
// range of the integer type (NaN: 0); an integer that does not fit keeps its lowest bits; a
// conversion to bool is x != 0.
Output Cast(Input x, DType dtype, std::string_view name = "");

// x clamped to [low, high]. Throws Error if low > high.
Output Clip(Input x, double low, double high, std::string_view name = "");

inline Output operator+(Input a, Input b) { return Add(a, b); }
inline Output operator-(Input a, Input b) { return Sub(a, b); }
inline Output operator*(Input a, Input b) { return Mul(a, b); }
inline Output operator/(Input a, Input b) { return Div(a, b); }
inline Output operator-(Input x) { return Neg(x); }

}  // namespace tutti
