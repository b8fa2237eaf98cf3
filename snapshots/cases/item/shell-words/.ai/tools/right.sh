#!/bin/bash
# rye: {description: Counts., parameters: {type: object, required: [file_name], properties: {file_name: {type: string}}}}
wc -l -- "$RYE_PARAM_file_name"
