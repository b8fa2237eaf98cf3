#!/bin/bash
# rye: {description: Counts., parameters: {type: object, required: [file-name], properties: {file-name: {type: string}}}}
wc -l -- "$RYE_PARAM_file_name"
