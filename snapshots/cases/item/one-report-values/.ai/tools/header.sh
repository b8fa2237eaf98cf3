#!/bin/bash
set -e
# rye: {description: Counts the lines of a file., parameters: {type: object, required: [file], properties: {file: {type: string}}}}
wc -l -- "$RYE_PARAM_file"
