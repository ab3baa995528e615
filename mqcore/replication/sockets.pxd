# TCP as both ends of a followed log use it: sockets that do not block and send at once.
from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <arpa/inet.h>
    #include <errno.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/sendfile.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <unistd.h>
    int accept4(int, struct sockaddr *, socklen_t *, int);
    #define MQ_PEER_SIZE 64
    /* host:port of the other end into `peer`; the host ends at *host_length. */
    static int mq_link_accept(int listener, char *peer, int *host_length) {
      struct sockaddr_storage from;
      socklen_t size = sizeof from;
      char host[INET6_ADDRSTRLEN] = "?";
      int one = 1, port = 0;
      int fd = accept4(listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return -1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
      if (from.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&from)->sin6_addr, host, sizeof host);
        port = ntohs(((struct sockaddr_in6 *)&from)->sin6_port);
      } else {
        inet_ntop(AF_INET, &((struct sockaddr_in *)&from)->sin_addr, host, sizeof host);
        port = ntohs(((struct sockaddr_in *)&from)->sin_port);
      }
      snprintf(peer, MQ_PEER_SIZE, "%s:%d", host, port);
      *host_length = (int)strlen(host);
      return fd;
    }
    /* The host of such a peer in 16 bytes, an IPv4 one as IPv6 maps it; 0: it is none. */
    static int mq_link_address(const char *peer, int host_length, uint8_t *address) {
      static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
      char host[MQ_PEER_SIZE];
      if (host_length < 0 || host_length >= MQ_PEER_SIZE) return 0;
      memcpy(host, peer, host_length);
      host[host_length] = 0;
      if (inet_pton(AF_INET6, host, address) == 1) return 1;
      memcpy(address, mapped, sizeof mapped);
      return inet_pton(AF_INET, host, address + sizeof mapped) == 1;
    }
    /* Bytes, 0: the other end has gone, -1: nothing now, -2: an error that ends the link. */
    static int64_t mq_link_read(int fd, void *into, size_t size) {
      ssize_t got;
      do got = recv(fd, into, size, MSG_DONTWAIT); while (got < 0 && errno == EINTR);
      if (got >= 0) return got;
      return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : -2;
    }
    /* The first byte of what is to be read, which stays; -1: nothing now, -2: there will be none. */
    static int mq_link_first(int fd) {
      uint8_t first;
      ssize_t got;
      do got = recv(fd, &first, 1, MSG_DONTWAIT | MSG_PEEK); while (got < 0 && errno == EINTR);
      if (got == 1) return first;
      return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? -1 : -2;
    }
    /* As mq_link_read, into three places, one behind the other. */
    static int64_t mq_link_read_parts(int fd, void *a, size_t a_size, void *b, size_t b_size, void *c,
                                      size_t c_size) {
      struct iovec parts[3] = {{a, a_size}, {b, b_size}, {c, c_size}};
      struct msghdr message = {0};
      ssize_t got;
      message.msg_iov = parts;
      message.msg_iovlen = 3;
      do got = recvmsg(fd, &message, MSG_DONTWAIT); while (got < 0 && errno == EINTR);
      if (got >= 0) return got;
      return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : -2;
    }
    /* Bytes, -1: no room now, -2: an error that ends the link. more: the rest comes at once. */
    static int64_t mq_link_write(int fd, const void *from, size_t size, int more) {
      ssize_t put;
      do put = send(fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
      while (put < 0 && errno == EINTR);
      if (put >= 0) return put;
      return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : -2;
    }
    /* The same of a file's bytes; 0: the file ends there. */
    static int64_t mq_link_send_file(int fd, int file, int64_t offset, size_t size) {
      off_t at = offset;
      ssize_t put;
      do put = sendfile(fd, file, &at, size); while (put < 0 && errno == EINTR);
      if (put >= 0) return put;
      return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : -2;
    }
    /* errno of a connect that has ended; 0: it is connected. */
    static int mq_link_error(int fd) {
      int error = 0;
      socklen_t size = sizeof error;
      return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) ? errno : error;
    }
    """
    enum: MQ_PEER_SIZE
    bint link_address "mq_link_address"(const char* peer, int host_length, uint8_t* address) noexcept nogil
    int link_accept "mq_link_accept"(int listener, char* peer, int* host_length) noexcept nogil
    int64_t link_read "mq_link_read"(int fd, void* into, size_t size) noexcept nogil
    int link_first "mq_link_first"(int fd) noexcept nogil
    int64_t link_read_parts "mq_link_read_parts"(
        int fd, void* a, size_t a_size, void* b, size_t b_size, void* c, size_t c_size) noexcept nogil
    int64_t link_write "mq_link_write"(int fd, const void* data, size_t size,
                                       bint more) noexcept nogil
    int64_t link_send_file "mq_link_send_file"(int fd, int file, int64_t offset,
                                               size_t size) noexcept nogil
    int link_error "mq_link_error"(int fd) noexcept nogil

cdef enum:
    ADDRESS_SIZE = 16
    READS_A_TURN = 16                 # of one socket
