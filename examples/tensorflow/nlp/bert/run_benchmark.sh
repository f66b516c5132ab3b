#!/bin/bash
# Measure BERT, FP32 (a checkpoint) or tuned (a .pb):
#   bash run_benchmark.sh --dataset_location=data/wwm_uncased_L-24_H-1024_A-16 \
#        --input_model=./bert_int8.pb --mode=accuracy|benchmark [--batch_size=8] [--iters=100]
set -e
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mode=benchmark
more=()
for word in "$@"; do
  case $word in
    --topology=*|--int8=*|--config=*) ;; # the file says what it is
    --mode=*) mode=${word#*=} ;;
    --batch_size=*) more+=("--predict_batch_size=${word#*=}") ;;
    --*=*) more+=("$word") ;;
    *) echo "$word: expected --key=value" >&2; exit 2 ;;
  esac
done
[ "$mode" = performance ] && mode=benchmark
exec "${PYTHON:-python}" "$here/tune_squad.py" --mode="$mode" "${more[@]}"
