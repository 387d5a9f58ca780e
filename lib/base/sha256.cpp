#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "base/error.h"

namespace llm {
namespace {

EVP_MD_CTX* evp(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_DigestInit_ex(evp(context_), EVP_sha256(), nullptr) != 1)
    throw Error(ErrorKind::Runtime, "the cryptographic library gives no SHA-256");
}
Sha256::~Sha256() { EVP_MD_CTX_free(evp(context_)); }

void Sha256::update(std::span<const std::byte> data) {
  check(EVP_DigestUpdate(evp(context_), data.data(), data.size()) == 1, "SHA-256 takes data");
}

std::string Sha256::digest() {
  std::array<unsigned char, 32> bytes{};
  check(EVP_DigestFinal_ex(evp(context_), bytes.data(), nullptr) == 1, "SHA-256 ends");
  std::string text;
  for (const unsigned char b : bytes) {
    text += "0123456789abcdef"[b >> 4];
    text += "0123456789abcdef"[b & 15];
  }
  return text;
}

}  // namespace llm
