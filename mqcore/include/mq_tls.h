/* What is used of OpenSSL (1.1.1 and 3.x): a table of its functions, found at run time. Its headers
   are not needed, and who compiles and who runs this may have different versions of it. */
#ifndef MQ_TLS_H
#define MQ_TLS_H
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* result, name, parameters; looked for in libssl, which brings libcrypto along */
#define MQ_TLS_FUNCTIONS(X) \
  X(void *, TLS_server_method, (void)) \
  X(void *, TLS_client_method, (void)) \
  X(void *, SSL_CTX_new, (void *method)) \
  X(void, SSL_CTX_free, (void *context)) \
  X(int, SSL_CTX_up_ref, (void *context)) \
  X(long, SSL_CTX_ctrl, (void *context, int what, long number, void *pointer)) \
  X(uint64_t, SSL_CTX_set_options, (void *context, uint64_t options)) \
  X(int, SSL_CTX_use_certificate_chain_file, (void *context, const char *file)) \
  X(int, SSL_CTX_use_PrivateKey_file, (void *context, const char *file, int kind)) \
  X(int, SSL_CTX_check_private_key, (void *context)) \
  X(void *, SSL_CTX_get0_certificate, (void *context)) \
  X(void, SSL_CTX_set_default_passwd_cb, (void *context, void *function)) \
  X(void, SSL_CTX_set_default_passwd_cb_userdata, (void *context, void *with)) \
  X(int, SSL_CTX_load_verify_locations, (void *context, const char *file, const char *folder)) \
  X(int, SSL_CTX_set_default_verify_paths, (void *context)) \
  X(void *, SSL_load_client_CA_file, (const char *file)) \
  X(void, SSL_CTX_set_client_CA_list, (void *context, void *names)) \
  X(void, SSL_CTX_set_verify, (void *context, int mode, void *function)) \
  X(void *, SSL_CTX_get0_param, (void *context)) \
  X(int, X509_VERIFY_PARAM_set_flags, (void *param, unsigned long flags)) \
  X(int, X509_VERIFY_PARAM_set1_host, (void *param, const char *name, size_t length)) \
  X(int, X509_VERIFY_PARAM_set1_ip_asc, (void *param, const char *address)) \
  X(void *, SSL_get0_param, (void *ssl)) \
  X(long, SSL_get_verify_result, (const void *ssl)) \
  X(const char *, X509_verify_cert_error_string, (long result)) \
  X(int, SSL_CTX_set_cipher_list, (void *context, const char *text)) \
  X(int, SSL_CTX_set_ciphersuites, (void *context, const char *text)) \
  X(int, SSL_CTX_set_session_id_context, (void *context, const unsigned char *, unsigned int)) \
  X(int, SSL_CTX_set_num_tickets, (void *context, size_t count)) \
  X(void, SSL_CTX_set_alpn_select_cb, (void *context, void *function, void *with)) \
  X(void *, SSL_new, (void *context)) \
  X(void, SSL_free, (void *ssl)) \
  X(void, SSL_set_bio, (void *ssl, void *reading, void *writing)) \
  X(int, SSL_set_fd, (void *ssl, int fd)) \
  X(void, SSL_set_accept_state, (void *ssl)) \
  X(void, SSL_set_connect_state, (void *ssl)) \
  X(int, SSL_do_handshake, (void *ssl)) \
  X(int, SSL_read, (void *ssl, void *into, int room)) \
  X(int, SSL_write, (void *ssl, const void *data, int length)) \
  X(int, SSL_get_error, (const void *ssl, int result)) \
  X(int, SSL_has_pending, (const void *ssl)) \
  X(int, SSL_shutdown, (void *ssl)) \
  X(long, SSL_ctrl, (void *ssl, int what, long number, void *pointer)) \
  X(void, SSL_set_msg_callback, (void *ssl, void *function)) \
  X(void, ERR_clear_error, (void)) \
  X(unsigned long, ERR_peek_error, (void)) \
  X(unsigned long, ERR_peek_last_error, (void)) \
  X(const char *, ERR_reason_error_string, (unsigned long code)) \
  X(unsigned long, OpenSSL_version_num, (void)) \
  X(const char *, OpenSSL_version, (int which)) \
  X(void *, BIO_meth_new, (int kind, const char *name)) \
  X(int, BIO_meth_set_read, (void *method, void *function)) \
  X(int, BIO_meth_set_write, (void *method, void *function)) \
  X(int, BIO_meth_set_ctrl, (void *method, void *function)) \
  X(void *, BIO_new, (void *method)) \
  X(int, BIO_free, (void *bio)) \
  X(void, BIO_set_data, (void *bio, void *data)) \
  X(void *, BIO_get_data, (void *bio)) \
  X(void, BIO_set_init, (void *bio, int yes)) \
  X(void, BIO_set_flags, (void *bio, int flags)) \
  X(void, BIO_clear_flags, (void *bio, int flags)) \
  X(void *, BIO_s_mem, (void)) \
  X(int, BIO_read, (void *bio, void *into, int room)) \
  X(void *, EVP_PKEY_CTX_new_id, (int kind, void *engine)) \
  X(void, EVP_PKEY_CTX_free, (void *context)) \
  X(int, EVP_PKEY_keygen_init, (void *context)) \
  X(int, EVP_PKEY_CTX_ctrl_str, (void *context, const char *name, const char *value)) \
  X(int, EVP_PKEY_keygen, (void *context, void **key)) \
  X(void, EVP_PKEY_free, (void *key)) \
  X(void *, EVP_sha256, (void)) \
  X(void *, X509_new, (void)) \
  X(void, X509_free, (void *certificate)) \
  X(int, X509_set_version, (void *certificate, long version)) \
  X(void *, X509_get_serialNumber, (void *certificate)) \
  X(int, ASN1_INTEGER_set, (void *number, long value)) \
  X(void *, X509_getm_notBefore, (const void *certificate)) \
  X(void *, X509_getm_notAfter, (const void *certificate)) \
  X(void *, X509_gmtime_adj, (void *time, long seconds)) \
  X(int, X509_cmp_current_time, (const void *time)) \
  X(void *, X509_get_subject_name, (const void *certificate)) \
  X(int, X509_NAME_add_entry_by_txt, (void *name, const char *field, int kind, \
                                      const unsigned char *text, int length, int at, int set)) \
  X(int, X509_set_issuer_name, (void *certificate, void *name)) \
  X(int, X509_set_pubkey, (void *certificate, void *key)) \
  X(int, X509_sign, (void *certificate, void *key, const void *digest)) \
  X(int, PEM_write_bio_X509, (void *bio, void *certificate)) \
  X(int, PEM_write_bio_PrivateKey, (void *bio, void *key, const void *cipher, \
                                    const unsigned char *password, int length, void *ask, \
                                    void *with))

typedef struct {
#define MQ_TLS_POINTER(result, name, parameters) result (*name) parameters;
  MQ_TLS_FUNCTIONS(MQ_TLS_POINTER)
#undef MQ_TLS_POINTER
} mq_tls_library_t;

/* Fills the table from an opened library; the name of the first function that is missing, or NULL. */
static inline const char *mq_tls_find(void *handle, mq_tls_library_t *library) {
#define MQ_TLS_FIND(result, name, parameters) \
  *(void **)&library->name = dlsym(handle, #name); \
  if (!library->name) return #name;
  MQ_TLS_FUNCTIONS(MQ_TLS_FIND)
#undef MQ_TLS_FIND
  return NULL;
}
#endif
