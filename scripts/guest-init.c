// SPDX-License-Identifier: GPL-2.0-only
/*
 * A guest's first process. In the initramfs it loads the modules that the root
 * file system needs and mounts that, with the kernel's modules and this run's
 * files in it; then it runs /portsteer/.lab/command on the second serial port,
 * writes the exit status to the third and restarts the machine, which ends it.
 *
 * It's one static program rather than a script because starting a process is
 * dear in an emulated machine: this saves a good second of every boot.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define LAB "/portsteer/.lab"

static void note(const char *format, ...)
{
	char text[512];
	va_list args;
	int fd;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		write(fd, text, strlen(text));
	close(fd);
}

static void finish(void)
{
	reboot(RB_AUTOBOOT);
	_exit(1);
}

static int try_mount(const char *dev, const char *dir, const char *type,
		     unsigned long flags, const char *options)
{
	mkdir(dir, 0755);
	if (!mount(dev, dir, type, flags, options))
		return 0;
	note("guest-init: can't mount %s on %s: %s\n", dev, dir, strerror(errno));
	return -1;
}

static void load_modules(void)
{
	char name[128], path[160];
	FILE *list = fopen("/modules/list", "r");

	while (list && fscanf(list, "%127s", name) == 1) {
		int fd;

		snprintf(path, sizeof(path), "/modules/%s", name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
			note("guest-init: can't load %s: %s\n", name, strerror(errno));
		close(fd);
		unlink(path);
	}
	if (list)
		fclose(list);
}

static void mount_root(void)
{
	char release[128] = "", dir[160];
	FILE *f = fopen("/modules/release", "r");

	if (f) {
		if (fscanf(f, "%127s", release) != 1)
			release[0] = '\0';
		fclose(f);
	}
	for (int i = 0; i < 200 && access("/dev/vdb", F_OK); i++)
		usleep(50000);
	if (try_mount("/dev/vda", "/root", "ext4", MS_NOATIME, NULL))
		finish();
	snprintf(dir, sizeof(dir), "/root/lib/modules/%s", release);
	try_mount("/dev/vdb", dir, "ext4", MS_RDONLY | MS_NOATIME, NULL);
	try_mount("/portsteer", "/root/portsteer", NULL, MS_BIND, NULL);
	mount("/proc", "/root/proc", NULL, MS_MOVE, NULL);
	mount("/sys", "/root/sys", NULL, MS_MOVE, NULL);
	mount("/dev", "/root/dev", NULL, MS_MOVE, NULL);
	if (chdir("/root") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		finish();
}

static void mount_rest(void)
{
	try_mount("devpts", "/dev/pts", "devpts", 0, "gid=5,mode=620,ptmxmode=666");
	try_mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL);
	try_mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
	try_mount("tmpfs", "/run", "tmpfs", 0, "mode=755");
	try_mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	try_mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	try_mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL);
	try_mount("bpf", "/sys/fs/bpf", "bpf", 0, NULL);
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
}

static void loopback_up(void)
{
	struct ifreq req = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req))
		note("guest-init: can't bring lo up: %s\n", strerror(errno));
	close(fd);
}

/* A serial port, which passes bytes through untouched if it's raw. */
static int open_port(const char *path, int raw)
{
	struct termios t;
	int fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 || tcgetattr(fd, &t)) {
		note("guest-init: can't open %s: %s\n", path, strerror(errno));
		finish();
	}
	if (raw)
		cfmakeraw(&t);
	cfsetspeed(&t, B115200);
	tcsetattr(fd, TCSANOW, &t);
	return fd;
}

static void run_command(int port, int interactive)
{
	int in = interactive ? port : open("/dev/null", O_RDONLY);

	setsid();
	if (interactive)
		ioctl(port, TIOCSCTTY, 0);
	dup2(in, 0);
	dup2(port, 1);
	dup2(port, 2);
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("HOME", "/root", 1);
	setenv("LANG", "C.UTF-8", 1);
	if (!chdir("/portsteer"))
		execl("/bin/bash", "bash", LAB "/command", NULL);
	dprintf(2, "guest-init: can't start bash: %s\n", strerror(errno));
	_exit(127);
}

/* With a kernel that looks for leaks, what it found goes to the log. */
static void report_leaks(void)
{
	char line[256];
	FILE *f = fopen("/sys/kernel/debug/kmemleak", "r+");

	if (!f)
		return;
	/* an object younger than 5 s isn't reported */
	for (int i = 0; i < 2; i++) {
		sleep(6);
		fputs("scan\n", f);
		fflush(f);
	}
	rewind(f);
	while (fgets(line, sizeof(line), f))
		note("%s", line);
	fclose(f);
}

int main(void)
{
	int port, status_port, status, interactive;
	pid_t child, ended;

	try_mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	try_mount("proc", "/proc", "proc", 0, NULL);
	try_mount("sysfs", "/sys", "sysfs", 0, NULL);
	load_modules();
	mount_root();
	mount_rest();
	loopback_up();
	sethostname("guest", 5);

	interactive = !access(LAB "/shell", F_OK);
	port = open_port("/dev/ttyS1", !interactive);
	status_port = open_port("/dev/ttyS2", 1);
	note("guest-init: command starts\n");
	child = fork();
	if (!child)
		run_command(port, interactive);
	do {
		ended = wait(&status);
	} while (ended != child && (ended >= 0 || errno == EINTR));
	status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	note("guest-init: command ends with status %d\n", status);
	report_leaks();
	tcdrain(port);
	dprintf(status_port, "%d\n", status);
	tcdrain(status_port);
	finish();
}
