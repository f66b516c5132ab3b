#!/bin/bash
# ./run_benchmark.sh --int8=true --mode=benchmark --batch_size=32 [--input_model=int8_model/]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
options=(--mode=benchmark)
for word in "$@"; do
  case $word in
    --input_model=* | --dataset_location=* | --int8=* | --mode=* | --batch_size=*)
      options+=("$word") ;;
    --iters=* | --iter=*) options+=("--iter=${word#*=}") ;;
    *) echo "error: $word is not known; known are --int8= --mode= --batch_size= --input_model=" \
            "--dataset_location= --iters=" >&2; exit 2 ;;
  esac
done
exec "${PYTHON:-python}" "$here/classify.py" "${options[@]}"
