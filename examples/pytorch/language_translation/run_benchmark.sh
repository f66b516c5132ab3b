#!/bin/bash
# ./run_benchmark.sh --topology=bert_base_MRPC --mode=benchmark|accuracy|compare --int8=true|false
#                    --input_model=DIR --dataset_location=data --batch_size=8 [--iters=50]
exec "${PYTHON:-python}" "$(cd "$(dirname "$0")" && pwd)/examples/run_benchmark.py" "$@"
