#!/bin/bash
# rye: {description: Prints a column of a file., parameters: {type: object, properties: {file: {type: string}}}}
file=$RYE_PARAM_file
awk '{print $1}' "$file"
