/* How the two sides of a test program fail, and how they meet over TCP. For one source file each: all is static.
 *
 * Who includes it defines WHO, the program's name, and may define WHERE() to print how far it was.
 */
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef WHERE
#define WHERE() ((void)0)
#endif

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs(WHO ": ", stderr);
	WHERE();
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

#define MUST(what) ((what) ? (void)0 : fail("%s: %s", #what, strerror(errno)))

/* Tells the other side `length` bytes and hears as many. */
static inline void exchange(int fd, const void *mine, void *theirs, size_t length)
{
	MUST(send(fd, mine, length, MSG_NOSIGNAL) == (ssize_t)length);
	MUST(recv(fd, theirs, length, MSG_WAITALL) == (ssize_t)length);
}

/* A connection to `host`, or from whoever comes first if there is none. */
static inline int meet(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET, .ai_flags = host ? 0 : AI_PASSIVE};
	struct addrinfo *found;
	int error = getaddrinfo(host, port, &hints, &found), yes = 1, fd;
	if (error)
		fail("%s: %s", host ? host : "any address", gai_strerror(error));
	MUST((fd = socket(found->ai_family, found->ai_socktype, 0)) >= 0);
	if (host) {
		MUST(!connect(fd, found->ai_addr, found->ai_addrlen));
	} else {
		int listener = fd;
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
		MUST(!bind(listener, found->ai_addr, found->ai_addrlen));
		MUST(!listen(listener, 1));
		MUST((fd = accept(listener, NULL, NULL)) >= 0);
		close(listener);
	}
	freeaddrinfo(found);
	return fd;
}
