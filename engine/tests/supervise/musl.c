/* A program of C with threads, processes, sockets and files, linked statically with musl. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void *sleeper(void *unused) { usleep(1000); return unused; }
int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, sleeper, 0) || pthread_join(thread, 0)) return 1;
    char line[99] = "", path[99], bytes[8];
    FILE *piped = popen("echo piped", "r");
    if (!fgets(line, sizeof line, piped) || strcmp(line, "piped\n") || pclose(piped)) return 2;
    int ends[2], status;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 3;
    pid_t child = fork();
    if (!child) { if (write(ends[1], "x", 1) != 1) _exit(1); _exit(0); }
    struct pollfd ready = { ends[0], POLLIN, 0 };
    if (poll(&ready, 1, 5000) != 1 || waitpid(child, &status, 0) != child || status) return 4;
    char *arguments[] = { "true", 0 };
    if (posix_spawnp(&child, "true", 0, 0, arguments, environ) || waitpid(child, &status, 0) != child || status) return 5;
    FILE *file = fopen("out/m", "w");
    if (!file || fprintf(file, "kept") != 4 || fclose(file) || chmod("out/m", 0600) || rename("out/m", "out/n")) return 6;
    struct stat info;
    if (stat("out/n", &info) || info.st_size != 4 || symlink("n", "out/l") || readlink("out/l", path, sizeof path) != 1) return 7;
    DIR *folder = opendir("out");
    while (readdir(folder)) {}
    closedir(folder);
    void *large = malloc(1 << 20);
    if (!(large = realloc(large, 4 << 20)) || getrandom(bytes, sizeof bytes, 0) != sizeof bytes || !getcwd(path, sizeof path)) return 8;
    free(large);
    struct rlimit files = { 100, 100 };
    cpu_set_t set;
    if (setrlimit(RLIMIT_NOFILE, &files) || sched_getaffinity(0, sizeof set, &set)) return 9;
    struct timespec now;
    signal(SIGTERM, SIG_IGN);
    if (clock_gettime(CLOCK_MONOTONIC, &now) || kill(getpid(), SIGTERM)) return 10;
    puts("musl works");
    return 0;
}
