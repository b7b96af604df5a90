#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// The job token is a secret that all ranks of a job share. It never travels: a rank proves that it
// has it by a keyed digest (HMAC-SHA256) over random bytes that the other chose.
namespace tutti::net {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kDigestBytes = 32;

// Random bytes, for one handshake only.
std::string MakeNonce();

// A random token for a job whose user has given none, in letters and digits.
std::string MakeToken();

// HMAC-SHA256 of `message` under `token`: kDigestBytes bytes. An empty token is a key like others.
std::string TokenDigest(std::string_view token, std::string_view message);

// Takes the same time wherever the two differ, so that a digest cannot be guessed byte by byte.
bool SameDigest(std::string_view a, std::string_view b);

}  // namespace tutti::net
