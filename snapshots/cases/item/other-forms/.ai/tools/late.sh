#!/bin/bash
set -e
# rye: {description: Prints the branch.}
git branch --show-current
