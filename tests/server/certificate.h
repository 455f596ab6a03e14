// Certificates that sign themselves, made by the test.
#ifndef INFERSCALE_TESTS_SERVER_CERTIFICATE_H_
#define INFERSCALE_TESTS_SERVER_CERTIFICATE_H_

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <memory>
#include <string>

namespace inferscale {

// Writes a new key of this curve, and a certificate with this name that is good for an hour. With a
// passphrase the key is encrypted.
inline void MakeCertificate(const std::string& name, const std::string& certificate_file,
                            const std::string& key_file, const char* curve = "P-256",
                            const char* passphrase = nullptr) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen(curve), &EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
  X509* const x509 = certificate.get();
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), 0);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, key.get());
  X509_NAME* const subject = X509_get_subject_name(x509);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(x509, subject);
  X509_sign(x509, key.get(), EVP_sha256());
  const auto write = [](const std::string& path, const auto& body) {
    const std::unique_ptr<std::FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "w"),
                                                                  &std::fclose);
    body(file.get());
  };
  write(certificate_file, [&](std::FILE* file) { PEM_write_X509(file, x509); });
  write(key_file, [&](std::FILE* file) {
    PEM_write_PrivateKey(file, key.get(), passphrase != nullptr ? EVP_aes_128_cbc() : nullptr,
                         nullptr, 0, nullptr, const_cast<char*>(passphrase));
  });
}

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_SERVER_CERTIFICATE_H_
