// Without chance: a server whose hash functions and skip lists are seeded alike executes the same instructions for the
// same calls. Loaded into a counted server by LD_PRELOAD.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static FILE *opened(const char *by, const char *path, const char *mode) {
  FILE *(*next)(const char *, const char *) = (FILE *(*)(const char *, const char *))dlsym(RTLD_NEXT, by);
  return next(strcmp(path, "/dev/urandom") == 0 ? "/dev/zero" : path, mode);
}

FILE *fopen(const char *path, const char *mode) { return opened("fopen", path, mode); }
FILE *fopen64(const char *path, const char *mode) { return opened("fopen64", path, mode); }
void srandom(unsigned seed) { (void)seed; }
void srand(unsigned seed) { (void)seed; }
