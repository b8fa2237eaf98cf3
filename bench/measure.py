#!/usr/bin/env python3
"""Whole-process figures: CPU time (user + system) and peak memory of commands, in turn, as medians and ratios.

    measure.py [-n RUNS] [--reset 'CMD'] NAME='CMD' [NAME='CMD' ...]

The first command is the floor: the others' CPU time is also printed as a multiple of it, pair by pair (median of the
ratios), so that a machine whose speed drifts still gives a usable figure. Commands run without a shell.
"""

import argparse
import os
import shlex
import statistics
import sys


def run(command, quiet=True):
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        if quiet:
            os.dup2(null, 1)
            os.dup2(null, 2)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error}\n".encode())
            os._exit(127)
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=11, help="counted runs of each command (default 11)")
    parser.add_argument("--reset", help="a command run, uncounted, before every counted one")
    parser.add_argument("commands", nargs="+", metavar="NAME=CMD")
    args = parser.parse_args()
    commands = [(name, shlex.split(line)) for name, _, line in (c.partition("=") for c in args.commands)]

    figures = {name: [] for name, _ in commands}
    for counted in range(-1, args.n):
        for name, command in commands:
            if args.reset:
                run(shlex.split(args.reset))
            code, cpu, memory = run(command)
            if code not in (0, 1):
                sys.exit(f"{name}: exit code {code}")
            if counted >= 0:
                figures[name].append((cpu * 1000, memory / 1024))

    floor = [cpu for cpu, _ in figures[commands[0][0]]]
    print(f"{'':24} {'CPU ms':>10} {'(min–max)':>18} {'peak MiB':>10} {'× ' + commands[0][0]:>14}")
    for name, _ in commands:
        cpus = [cpu for cpu, _ in figures[name]]
        ratios = [cpu / low for cpu, low in zip(cpus, floor) if low > 0]
        span = f"({min(cpus):.1f}–{max(cpus):.1f})"
        ratio = f"{statistics.median(ratios):.1f}" if ratios else "–"
        memory = max(memory for _, memory in figures[name])
        print(f"{name:24} {statistics.median(cpus):10.1f} {span:>18} {memory:10.1f} {ratio:>14}")


if __name__ == "__main__":
    main()
