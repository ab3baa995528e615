# OpenSSL, found at run time (mqcore/include/mq_tls.h says why). It is the one that the interpreter's
# own `ssl` works with, so that a machine has one to keep up to date.
from libc.stdint cimport uint64_t

cdef extern from "mq_tls.h" nogil:
    ctypedef struct TlsLibrary "mq_tls_library_t":
        void* (*TLS_server_method)() noexcept nogil
        void* (*TLS_client_method)() noexcept nogil
        void* (*SSL_CTX_new)(void*) noexcept nogil
        void (*SSL_CTX_free)(void*) noexcept nogil
        int (*SSL_CTX_up_ref)(void*) noexcept nogil
        long (*SSL_CTX_ctrl)(void*, int, long, void*) noexcept nogil
        uint64_t (*SSL_CTX_set_options)(void*, uint64_t) noexcept nogil
        int (*SSL_CTX_use_certificate_chain_file)(void*, const char*) noexcept nogil
        int (*SSL_CTX_use_PrivateKey_file)(void*, const char*, int) noexcept nogil
        int (*SSL_CTX_check_private_key)(void*) noexcept nogil
        void* (*SSL_CTX_get0_certificate)(void*) noexcept nogil
        void (*SSL_CTX_set_default_passwd_cb)(void*, void*) noexcept nogil
        void (*SSL_CTX_set_default_passwd_cb_userdata)(void*, void*) noexcept nogil
        int (*SSL_CTX_load_verify_locations)(void*, const char*, const char*) noexcept nogil
        int (*SSL_CTX_set_default_verify_paths)(void*) noexcept nogil
        void* (*SSL_load_client_CA_file)(const char*) noexcept nogil
        void (*SSL_CTX_set_client_CA_list)(void*, void*) noexcept nogil
        void (*SSL_CTX_set_verify)(void*, int, void*) noexcept nogil
        void* (*SSL_CTX_get0_param)(void*) noexcept nogil
        int (*X509_VERIFY_PARAM_set_flags)(void*, unsigned long) noexcept nogil
        int (*X509_VERIFY_PARAM_set1_host)(void*, const char*, size_t) noexcept nogil
        int (*X509_VERIFY_PARAM_set1_ip_asc)(void*, const char*) noexcept nogil
        void* (*SSL_get0_param)(void*) noexcept nogil
        long (*SSL_get_verify_result)(const void*) noexcept nogil
        const char* (*X509_verify_cert_error_string)(long) noexcept nogil
        int (*SSL_CTX_set_cipher_list)(void*, const char*) noexcept nogil
        int (*SSL_CTX_set_ciphersuites)(void*, const char*) noexcept nogil
        int (*SSL_CTX_set_session_id_context)(void*, const unsigned char*, unsigned int) noexcept nogil
        int (*SSL_CTX_set_num_tickets)(void*, size_t) noexcept nogil
        void (*SSL_CTX_set_alpn_select_cb)(void*, void*, void*) noexcept nogil
        void* (*SSL_new)(void*) noexcept nogil
        void (*SSL_free)(void*) noexcept nogil
        void (*SSL_set_bio)(void*, void*, void*) noexcept nogil
        int (*SSL_set_fd)(void*, int) noexcept nogil
        void (*SSL_set_accept_state)(void*) noexcept nogil
        void (*SSL_set_connect_state)(void*) noexcept nogil
        int (*SSL_do_handshake)(void*) noexcept nogil
        int (*SSL_read)(void*, void*, int) noexcept nogil
        int (*SSL_write)(void*, const void*, int) noexcept nogil
        int (*SSL_get_error)(const void*, int) noexcept nogil
        int (*SSL_has_pending)(const void*) noexcept nogil
        int (*SSL_shutdown)(void*) noexcept nogil
        long (*SSL_ctrl)(void*, int, long, void*) noexcept nogil
        void (*SSL_set_msg_callback)(void*, void*) noexcept nogil
        void (*ERR_clear_error)() noexcept nogil
        unsigned long (*ERR_peek_error)() noexcept nogil
        unsigned long (*ERR_peek_last_error)() noexcept nogil
        const char* (*ERR_reason_error_string)(unsigned long) noexcept nogil
        unsigned long (*OpenSSL_version_num)() noexcept nogil
        const char* (*OpenSSL_version)(int) noexcept nogil
        void* (*BIO_meth_new)(int, const char*) noexcept nogil
        int (*BIO_meth_set_read)(void*, void*) noexcept nogil
        int (*BIO_meth_set_write)(void*, void*) noexcept nogil
        int (*BIO_meth_set_ctrl)(void*, void*) noexcept nogil
        void* (*BIO_new)(void*) noexcept nogil
        int (*BIO_free)(void*) noexcept nogil
        void (*BIO_set_data)(void*, void*) noexcept nogil
        void* (*BIO_get_data)(void*) noexcept nogil
        void (*BIO_set_init)(void*, int) noexcept nogil
        void (*BIO_set_flags)(void*, int) noexcept nogil
        void (*BIO_clear_flags)(void*, int) noexcept nogil
        void* (*BIO_s_mem)() noexcept nogil
        int (*BIO_read)(void*, void*, int) noexcept nogil
        void* (*EVP_PKEY_CTX_new_id)(int, void*) noexcept nogil
        void (*EVP_PKEY_CTX_free)(void*) noexcept nogil
        int (*EVP_PKEY_keygen_init)(void*) noexcept nogil
        int (*EVP_PKEY_CTX_ctrl_str)(void*, const char*, const char*) noexcept nogil
        int (*EVP_PKEY_keygen)(void*, void**) noexcept nogil
        void (*EVP_PKEY_free)(void*) noexcept nogil
        void* (*EVP_sha256)() noexcept nogil
        void* (*X509_new)() noexcept nogil
        void (*X509_free)(void*) noexcept nogil
        int (*X509_set_version)(void*, long) noexcept nogil
        void* (*X509_get_serialNumber)(void*) noexcept nogil
        int (*ASN1_INTEGER_set)(void*, long) noexcept nogil
        void* (*X509_getm_notBefore)(const void*) noexcept nogil
        void* (*X509_getm_notAfter)(const void*) noexcept nogil
        void* (*X509_gmtime_adj)(void*, long) noexcept nogil
        int (*X509_cmp_current_time)(const void*) noexcept nogil
        void* (*X509_get_subject_name)(const void*) noexcept nogil
        int (*X509_NAME_add_entry_by_txt)(void*, const char*, int, const unsigned char*, int, int,
                                          int) noexcept nogil
        int (*X509_set_issuer_name)(void*, void*) noexcept nogil
        int (*X509_set_pubkey)(void*, void*) noexcept nogil
        int (*X509_sign)(void*, void*, const void*) noexcept nogil
        int (*PEM_write_bio_X509)(void*, void*) noexcept nogil
        int (*PEM_write_bio_PrivateKey)(void*, void*, const void*, const unsigned char*, int, void*,
                                        void*) noexcept nogil

cdef enum:                             # of OpenSSL
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_WANT_WRITE = 3
    CTRL_MODE = 33
    CTRL_READ_AHEAD = 41
    MODE_PARTIAL_WRITE = 0x01
    MODE_MOVING_BUFFER = 0x02
    MODE_RELEASE_BUFFERS = 0x10

cpdef enum:
    EMPTY_BYTES_MAX = 64 << 10         # tls TL6: of records without data, from one peer

# Opens it when it is first asked for. Raises TlsLibraryError, which says what was looked for.
cdef const TlsLibrary* tls_library() except NULL
