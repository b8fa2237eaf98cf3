#!/bin/bash
# rye: {description: Prints a file., parameters: {type: object, properties: {file: {type: string}}}}
cat "$file"
