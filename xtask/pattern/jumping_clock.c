/* Clocks that jump under a program, to be loaded beside it.
 *
 * From a second and a half after the start on, the wall clock jumps by an hour every 200 ms, there and back, and the
 * monotonic clock leaps ahead by JUMP_S seconds every 700 ms, JUMPS times: as for a virtual machine that was stopped. The
 * kernel keeps the real clocks.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { CALM_MS = 1500, WALL_EVERY_MS = 200, LEAP_EVERY_MS = 700, HOUR_S = 3600 };

static long long setting(const char *name, long long otherwise)
{
	const char *text = getenv(name);

	return text ? atoll(text) : otherwise;
}

/* Since the first call, without the calm time; negative within it. */
static long long unrest_ms(void)
{
	static long long begun_ms;
	struct timespec real;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &real);
	long long now_ms = real.tv_sec * 1000ll + real.tv_nsec / 1000000;

	if (!begun_ms)
		begun_ms = now_ms;
	return now_ms - begun_ms - CALM_MS;
}

static long long wall_off_s(void)
{
	long long ms = unrest_ms();

	return ms < 0 ? 0 : (ms / WALL_EVERY_MS % 2 ? HOUR_S : -HOUR_S);
}

static long long leapt_s(void)
{
	long long ms = unrest_ms(), leaps = ms < 0 ? 0 : 1 + ms / LEAP_EVERY_MS, most = setting("JUMPS", 0);

	return (leaps < most ? leaps : most) * setting("JUMP_S", 30);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	int result = syscall(SYS_clock_gettime, clock, time);

	if (!result && clock == CLOCK_REALTIME)
		time->tv_sec += wall_off_s();
	if (!result && clock == CLOCK_MONOTONIC)
		time->tv_sec += leapt_s();
	return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
	int result = syscall(SYS_gettimeofday, time, zone);

	if (!result)
		time->tv_sec += wall_off_s();
	return result;
}

time_t time(time_t *at)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
