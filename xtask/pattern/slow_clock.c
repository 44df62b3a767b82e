/* A monotonic clock that runs SLOW_CLOCK times slower, to be loaded under a program that a profiler slows down as much.
 *
 * What reacts to time (round trips, delays, timeouts) then sees about what it sees at full speed. Everything else that
 * measures time, and the kernel, keep the real clock.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
	static long long slower;
	int result = syscall(SYS_clock_gettime, clock, time);

	if (!slower) {
		const char *text = getenv("SLOW_CLOCK");

		slower = text && atoll(text) > 0 ? atoll(text) : 1;
	}
	if (!result && clock == CLOCK_MONOTONIC) {
		long long ns = (time->tv_sec * 1000000000ll + time->tv_nsec) / slower;

		time->tv_sec = ns / 1000000000;
		time->tv_nsec = ns % 1000000000;
	}
	return result;
}
