#!/bin/bash
# rye: {description: Greets., parameters: {}}
echo hello
