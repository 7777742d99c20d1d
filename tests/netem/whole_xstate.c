/* SPDX-License-Identifier: MIT */
/* Preloaded into user-mode Linux on processors with AMX.
 *
 * Since there is AMX, the kernel outside takes a program's registers back (PTRACE_SETREGSET of NT_X86_XSTATE) only whole, with
 * 8 KiB of tiles, and user-mode Linux has room for what came before them alone: init dies by a signal at once. Nothing in
 * there may use tiles, so what is missing is zeros.
 */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char whole[1 << 16] __attribute__((aligned(64)));
static size_t whole_bytes;

static long set_whole(long pid, const struct iovec *given)
{
	struct iovec all = {whole, sizeof whole};

	if (!whole_bytes) {
		if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &all) < 0)
			return -1;
		whole_bytes = all.iov_len;
	}
	size_t known_bytes = given->iov_len < whole_bytes ? given->iov_len : whole_bytes;
	memcpy(whole, given->iov_base, known_bytes);
	memset(whole + known_bytes, 0, whole_bytes - known_bytes);
	all.iov_len = whole_bytes;
	return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list rest;
	long word;

	va_start(rest, request);
	long pid = va_arg(rest, int), address = va_arg(rest, long), data = va_arg(rest, long);
	va_end(rest);
	if (request == PTRACE_SETREGSET && address == NT_X86_XSTATE)
		return set_whole(pid, (void *)data);
	if (request != PTRACE_PEEKTEXT && request != PTRACE_PEEKDATA && request != PTRACE_PEEKUSER)
		return syscall(SYS_ptrace, request, pid, address, data);
	if (syscall(SYS_ptrace, request, pid, address, &word) < 0)
		return -1;
	errno = 0; /* the kernel writes the word where the C library returns it */
	return word;
}
