/* Checks of the C test programs: each failed one is named, and counted for the exit status. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(what)                                                                                \
	do {                                                                                       \
		errno = 0;                                                                         \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

/* Without this object the rest makes no sense. */
#define NEED(what)                                                                                 \
	do {                                                                                       \
		errno = 0;                                                                         \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: cannot go on without: %s (%s)\n", __FILE__, __LINE__, #what, \
				strerror(errno));                                                  \
			exit(2);                                                                   \
		}                                                                                  \
	} while (0)

/* The call returns null or -1 and says why. */
#define FAILS(call, failed, why) CHECK((call) == (failed) && errno == (why))

#endif
