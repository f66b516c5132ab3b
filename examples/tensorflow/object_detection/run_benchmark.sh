#!/bin/bash
# Measure a detector, FP32 or tuned:
#   bash run_benchmark.sh --topology=ssd_resnet50_v1 --dataset_location=coco_val.record \
#        --input_model=model.pb --mode=accuracy|benchmark [--batch_size=1] [--iters=100]
set -e
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
more=()
mode=benchmark
for word in "$@"; do
  case $word in
    --topology=*) topology=${word#*=} ;;
    --dataset_location=*) dataset_location=${word#*=} ;;
    --input_model=*) input_model=${word#*=} ;;
    --mode=*) mode=${word#*=} ;;
    --int8=*) ;; # the file says what it is
    --*=*) more+=("$word") ;;
    *) echo "$word: expected --key=value" >&2; exit 2 ;;
  esac
done
[ "$mode" = performance ] && mode=benchmark
: "${dataset_location:?give --dataset_location=coco_val.record}"
: "${input_model:?give --input_model=model.pb}"
exec "${PYTHON:-python}" "$here/infer_detections.py" --mode="$mode" \
  --topology="${topology:-ssd_resnet50_v1}" --data_location="$dataset_location" \
  --input_graph="$input_model" "${more[@]}"
