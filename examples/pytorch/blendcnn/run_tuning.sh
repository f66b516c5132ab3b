#!/bin/bash
# ./run_tuning.sh --input_model=models/ --dataset_location=MRPC/ --output_model=int8_model/
set -eu
here=$(cd "$(dirname "$0")" && pwd)
options=()
for word in "$@"; do
  case $word in
    --input_model=* | --dataset_location=* | --output_model=* | --batch_size=* | --manual_stubs)
      options+=("$word") ;;
    --config=*) options+=("--lpot_yaml=${word#*=}") ;;
    *) echo "error: $word is not known; known are --input_model= --dataset_location=" \
            "--output_model= --config= --batch_size= --manual_stubs" >&2; exit 2 ;;
  esac
done
exec "${PYTHON:-python}" "$here/classify.py" --tune ${options[@]+"${options[@]}"}
