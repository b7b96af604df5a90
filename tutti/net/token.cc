#include "tutti/net/token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "tutti/base/check.h"

namespace tutti::net {

std::string MakeNonce() {
  std::string nonce(kNonceBytes, '\0');
  size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    TUTTI_CHECK(got > 0 || errno == EINTR);  // the kernel has no other error for these arguments
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return nonce;
}

std::string MakeToken() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string token;
  for (const char byte : MakeNonce()) {
    token += kDigits[static_cast<unsigned char>(byte) >> 4];
    token += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return token;
}

std::string TokenDigest(std::string_view token, std::string_view message) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int length = 0;
  // OpenSSL takes a null key for "the key as before", so an empty token still has an address.
  const unsigned char* done =
      HMAC(EVP_sha256(), token.empty() ? "" : token.data(), static_cast<int>(token.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &length);
  TUTTI_CHECK(done != nullptr && length == kDigestBytes);
  digest.resize(length);
  return digest;
}

bool SameDigest(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tutti::net
