/* Counts the steps and the memory of a fuzz target, and aborts if a file takes more than its size allows.
 *
 * A step is an edge of the control flow of the Rust code: the compiler calls `__sanitizer_cov_trace_pc` at each one.
 * Unlike seconds, steps and bytes are the same on every machine. This file is not instrumented, and it is C, because
 * the crates contain no unsafe code. */

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t steps, live, peak;
static int is_counting;

void __wrap___sanitizer_cov_trace_pc(void) { steps++; }

/* The functions of glibc behind the standard names. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static void *allocated(void *memory) {
    if (is_counting && memory) {
        live += malloc_usable_size(memory);
        peak = live > peak ? live : peak;
    }
    return memory;
}

static void freed(void *memory) {
    if (is_counting && memory) {
        uint64_t size = malloc_usable_size(memory);
        live -= size < live ? size : live;
    }
}

void *malloc(size_t size) { return allocated(__libc_malloc(size)); }

void *calloc(size_t count, size_t size) { return allocated(__libc_calloc(count, size)); }

void *realloc(void *old, size_t size) {
    freed(old);
    return allocated(__libc_realloc(old, size));
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    *memory = allocated(__libc_memalign(alignment, size));
    return *memory ? 0 : 12;
}

void *aligned_alloc(size_t alignment, size_t size) { return allocated(__libc_memalign(alignment, size)); }

void free(void *memory) {
    freed(memory);
    __libc_free(memory);
}

/* Returns the limit in an environment variable: a number for every file, a plus, and a number for each byte of it. */
static uint64_t limit(const char *variable, size_t length) {
    const char *text = getenv(variable);
    if (!text) {
        return UINT64_MAX;
    }
    char *rest;
    uint64_t limit = strtoull(text, &rest, 10);
    return *rest == '+' ? limit + length * strtoull(rest + 1, NULL, 10) : limit;
}

static void check(const char *what, uint64_t found, uint64_t limit, size_t length) {
    if (found > limit) {
        fprintf(stderr, "%llu %s for a file of %zu bytes; the limit is %llu\n", (unsigned long long)found, what, length,
                (unsigned long long)limit);
        abort();
    }
}

int __real_LLVMFuzzerTestOneInput(const uint8_t *file, size_t length);

static int run(const uint8_t *file, size_t length) {
    steps = live = peak = 0;
    is_counting = 1;
    int result = __real_LLVMFuzzerTestOneInput(file, length);
    is_counting = 0;
    return result;
}

int __wrap_LLVMFuzzerTestOneInput(const uint8_t *file, size_t length) {
    uint64_t max_steps = limit("FUZZ_MAX_STEPS", length), max_memory = limit("FUZZ_MAX_MEMORY", length);
    int result = run(file, length);
    /* The first file that needs a table also builds it. Only a file that takes as much again is a finding. */
    if (steps > max_steps || peak > max_memory) {
        result = run(file, length);
    }
    if (getenv("FUZZ_PRINT")) {
        fprintf(stderr, "%zu bytes: %llu steps, %llu bytes of memory\n", length, (unsigned long long)steps,
                (unsigned long long)peak);
    }
    check("steps", steps, max_steps, length);
    check("bytes of memory", peak, max_memory, length);
    return result;
}
