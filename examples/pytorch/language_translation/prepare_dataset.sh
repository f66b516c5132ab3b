#!/bin/bash
# ./prepare_dataset.sh [--output_dir=data] [--tasks=MRPC,SQuAD]          downloads
# ./prepare_dataset.sh --source=DIR [--output_dir=data]                  from files you have
exec "${PYTHON:-python}" "$(cd "$(dirname "$0")" && pwd)/prepare_dataset.py" "$@"
