#!/bin/bash
# rye: {description: Counts the lines of a file., parameters: {type: object, properties: {file: {type: string}}}}
wc -l "$1"
