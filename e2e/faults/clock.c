// Answers a program that asks the C library for the calendar: so many seconds later than it is, as the
// first eight bytes of a file say that COPPICE_TEST_CLOCK names. Every other clock is as it is.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;

__attribute__((constructor)) static void find(void) {
  const char *path = getenv("COPPICE_TEST_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *found = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (found != MAP_FAILED) ahead = found;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int done = (int)syscall(SYS_clock_gettime, clock, time);
  int is_calendar = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (done == 0 && is_calendar && ahead) time->tv_sec += *ahead;
  return done;
}
