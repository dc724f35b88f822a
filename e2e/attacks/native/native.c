/* What an attacker's code does once it runs inside a server.
 *
 * SQL functions in C for PostgreSQL 15 to 18, without a header of the server:
 * what it expects of a library is in its manual, section 38.10, and laid out
 * below. Numbers are returned as the kernel returns them: negative ones are
 * error numbers. Texts are valid until the next call. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct abi {
	int version, funcmaxargs, indexmaxkeys, namedatalen, float8byval;
	char extra[32];
};

struct magic {
	int len;
	struct abi abi;
#if MAJOR >= 18
	const char *name, *version;
#endif
};

const struct magic *Pg_magic_func(void)
{
	static const struct magic magic = {
		.len = sizeof magic,
		.abi = { MAJOR * 100, 100, 32, 64, true, "PostgreSQL" },
	};
	return &magic;
}

struct argument {
	uintptr_t value;
	bool is_null;
};

struct call {
	void *function, *context, *result;
	unsigned collation;
	bool is_null;
	short count;
	struct argument arguments[];
};

#define TEXT(n) ((char *) call->arguments[n].value)
#define NUMBER(n) ((long) call->arguments[n].value)

#define FUNCTION(name)                                  \
	const int *pg_finfo_##name(void)                \
	{                                               \
		static const int version = 1;           \
		return &version;                        \
	}                                               \
	uintptr_t name(struct call *call)

static char answer[1 << 16];

static long checked(long result)
{
	return result < 0 ? -errno : result;
}

static uintptr_t said(const char *what)
{
	snprintf(answer, sizeof answer, "%s: %s", what, strerror(errno));
	return (uintptr_t) answer;
}

/* Any system call with numbers. */
FUNCTION(native_call)
{
	return checked(syscall(NUMBER(0), NUMBER(1), NUMBER(2), NUMBER(3), NUMBER(4), NUMBER(5), NUMBER(6)));
}

/* Any system call that begins with paths. */
FUNCTION(native_call_paths)
{
	return checked(syscall(NUMBER(0), TEXT(1), TEXT(2), TEXT(3), NUMBER(4), NUMBER(5)));
}

FUNCTION(native_symlink)
{
	return checked(symlink(TEXT(0), TEXT(1)));
}

FUNCTION(native_link)
{
	return checked(link(TEXT(0), TEXT(1)));
}

FUNCTION(native_rename)
{
	return checked(rename(TEXT(0), TEXT(1)));
}

FUNCTION(native_unlink)
{
	return checked(unlink(TEXT(0)));
}

FUNCTION(native_mkdir)
{
	return checked(mkdir(TEXT(0), 0700));
}

FUNCTION(native_rmdir)
{
	return checked(rmdir(TEXT(0)));
}

FUNCTION(native_chmod)
{
	return checked(chmod(TEXT(0), NUMBER(1)));
}

/* A FIFO, socket or device; the mode tells which (mknod(2)). */
FUNCTION(native_mknod)
{
	return checked(mknod(TEXT(0), NUMBER(1), NUMBER(2)));
}

FUNCTION(native_open)
{
	return checked(open(TEXT(0), NUMBER(1), 0700));
}

/* Replaces a file; the number of bytes. */
FUNCTION(native_write)
{
	int file = open(TEXT(0), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0700);
	if (file < 0)
		return -errno;
	long result = checked(write(file, TEXT(1), strlen(TEXT(1))));
	close(file);
	return result;
}

static long copy(int from, int to)
{
	char buffer[1 << 16];
	ssize_t length;
	while ((length = read(from, buffer, sizeof buffer)) > 0) {
		ssize_t written = write(to, buffer, length);
		if (written != length)
			return written < 0 ? -errno : -ENOSPC;
	}
	return checked(length);
}

/* Copies a file and makes it executable. */
FUNCTION(native_copy)
{
	int from = open(TEXT(0), O_RDONLY);
	if (from < 0)
		return -errno;
	int to = open(TEXT(1), O_WRONLY | O_CREAT | O_TRUNC, 0700);
	long result = to < 0 ? -errno : copy(from, to);
	close(from);
	close(to);
	return result;
}

/* The first bytes of a file, or why there are none. */
FUNCTION(native_read)
{
	int file = open(TEXT(0), O_RDONLY | O_NONBLOCK);
	if (file < 0)
		return said("open");
	ssize_t length = read(file, answer, sizeof answer - 1);
	int error = errno;
	close(file);
	errno = error;
	if (length < 0)
		return said("read");
	for (ssize_t i = 0; i < length; i++)
		if (!answer[i])
			answer[i] = ' ';
	answer[length] = 0;
	return (uintptr_t) answer;
}

/* Where a symbolic link leads. */
FUNCTION(native_readlink)
{
	ssize_t length = readlink(TEXT(0), answer, sizeof answer - 1);
	if (length < 0)
		return said("readlink");
	answer[length] = 0;
	return (uintptr_t) answer;
}

/* Names in a directory, one a line. */
FUNCTION(native_list)
{
	DIR *directory = opendir(TEXT(0));
	if (!directory)
		return said("open");
	size_t length = 0;
	struct dirent *entry;
	while ((entry = readdir(directory)) && length + sizeof entry->d_name + 2 < sizeof answer)
		length += sprintf(answer + length, "%s\n", entry->d_name);
	answer[length] = 0;
	closedir(directory);
	return (uintptr_t) answer;
}

/* Maps a file as code. */
FUNCTION(native_map_code)
{
	int file = open(TEXT(0), O_RDONLY);
	if (file < 0)
		return -errno;
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	long result = code == MAP_FAILED ? -errno : 0;
	close(file);
	return result;
}

/* Runs a program in a child; 0 when the kernel began to. `file` wins over `path`. */
static long execute(int file, const char *path, char *const *arguments)
{
	int outcome[2], error = 0, status;
	char *const nothing[] = { NULL };
	if (pipe2(outcome, O_CLOEXEC))
		return -errno;
	pid_t child = fork();
	if (child < 0)
		return -errno;
	if (!child) {
		if (file >= 0)
			syscall(SYS_execveat, file, "", arguments, nothing, AT_EMPTY_PATH);
		else
			syscall(SYS_execve, path, arguments, nothing);
		error = errno;
		if (write(outcome[1], &error, sizeof error) < 0)
			_exit(126);
		_exit(127);
	}
	close(outcome[1]);
	if (read(outcome[0], &error, sizeof error) != sizeof error)
		error = 0;
	close(outcome[0]);
	waitpid(child, &status, 0);
	return -error;
}

/* A program and its arguments, with blanks between them. */
FUNCTION(native_exec)
{
	char line[4096], *arguments[32], *rest = line;
	int count = 0;
	snprintf(line, sizeof line, "%s", TEXT(0));
	while (count < 31 && (arguments[count] = strsep(&rest, " ")))
		count++;
	arguments[count] = NULL;
	return execute(-1, arguments[0], arguments);
}

/* A program that exists only in memory, with the contents of a file. */
FUNCTION(native_exec_memory)
{
	char *arguments[] = { "memory", NULL };
	int from = open(TEXT(0), O_RDONLY);
	if (from < 0)
		return -errno;
	int memory = memfd_create("program", 0);
	long result = memory < 0 ? -errno : copy(from, memory);
	if (result == 0)
		result = execute(memory, NULL, arguments);
	close(from);
	close(memory);
	return result;
}

/* Connects to a Unix socket and closes it. */
FUNCTION(native_connect)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "%s", TEXT(0));
	/* An abstract name begins with a zero byte, here written as @. */
	socklen_t length = sizeof address;
	if (address.sun_path[0] == '@') {
		length = offsetof(struct sockaddr_un, sun_path) + strlen(TEXT(0));
		address.sun_path[0] = 0;
	}
	int socket_fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (socket_fd < 0)
		return -errno;
	long result = checked(connect(socket_fd, (struct sockaddr *) &address, length));
	close(socket_fd);
	return result;
}

/* Makes a Unix socket that nobody will ever answer at. */
FUNCTION(native_listen)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "%s", TEXT(0));
	int socket_fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (socket_fd < 0)
		return -errno;
	if (bind(socket_fd, (struct sockaddr *) &address, sizeof address) || listen(socket_fd, 8))
		return -errno;
	return 0;
}

/* Starts so many processes, of which each takes so many MiB and keeps them;
 * returns when they have them. */
FUNCTION(native_hoard)
{
	long count = NUMBER(0), length = NUMBER(1) << 20, ready = 0;
	int taken[2];
	char byte;
	if (pipe(taken))
		return -errno;
	for (long i = 0; i < count; i++) {
		pid_t child = fork();
		if (child < 0)
			return -errno;
		if (child)
			continue;
		setsid();
		char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED)
			_exit(1);
		memset(memory, 1, length);
		if (write(taken[1], memory, 1) != 1)
			_exit(1);
		/* Also the connection, which its client closes. */
		for (int file = 3; file < 1200; file++)
			close(file);
		for (;;)
			pause();
	}
	close(taken[1]);
	while (ready < count && read(taken[0], &byte, 1) == 1)
		ready++;
	close(taken[0]);
	return ready == count ? 0 : -ENOMEM;
}

FUNCTION(native_kill)
{
	return checked(kill(NUMBER(0), NUMBER(1)));
}
