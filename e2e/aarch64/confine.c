/* Installs seccomp filters and executes a command: `confine FILTER... -- COMMAND [ARGUMENT...]`. A filter is a file of
 * BPF instructions, as `filters_fit_the_kernel_on_every_architecture` of the engine writes it. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_FILTERS 8

int main(int count, char **arguments) {
    static struct sock_filter instructions[MAX_FILTERS][BPF_MAXINSNS];
    struct sock_fprog programs[MAX_FILTERS];
    int filters = 0, at = 1;
    for (; at < count && strcmp(arguments[at], "--"); at++, filters++) {
        FILE *file = filters < MAX_FILTERS ? fopen(arguments[at], "rb") : 0;
        size_t length = file ? fread(instructions[filters], sizeof **instructions, BPF_MAXINSNS, file) : 0;
        if (!length) return fprintf(stderr, "confine: %s holds no filter\n", arguments[at]), 125;
        fclose(file);
        programs[filters] = (struct sock_fprog){ length, instructions[filters] };
    }
    if (!filters || at + 1 >= count) return fprintf(stderr, "confine: no filter or no command\n"), 125;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return perror("confine: no_new_privs"), 125;
    for (int filter = 0; filter < filters; filter++)
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &programs[filter])) return perror("confine: seccomp"), 125;
    execvp(arguments[at + 1], arguments + at + 1);
    return perror("confine: exec"), 125;
}
