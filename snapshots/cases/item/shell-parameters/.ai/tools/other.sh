#!/usr/bin/env bash
# rye:
#   description: Count the lines of a file.
#   parameters: { properties: { path: { type: string } } }
wc -l "${RYE_PARAM_folder}"
