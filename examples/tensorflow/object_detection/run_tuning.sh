#!/bin/bash
# Tune a detector:
#   bash run_tuning.sh --topology=ssd_resnet50_v1 --dataset_location=coco_val.record \
#        --input_model=frozen_inference_graph.pb|DIR --output_model=out.pb [--config=my.yaml]
set -e
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
more=()
for word in "$@"; do
  case $word in
    --topology=*) topology=${word#*=} ;;
    --dataset_location=*) dataset_location=${word#*=} ;;
    --input_model=*) input_model=${word#*=} ;;
    --output_model=*) output_model=${word#*=} ;;
    --*=*) more+=("$word") ;;
    *) echo "$word: expected --key=value" >&2; exit 2 ;;
  esac
done
: "${dataset_location:?give --dataset_location=coco_val.record}"
: "${input_model:?give --input_model=frozen_inference_graph.pb, or a checkpoint directory}"
exec "${PYTHON:-python}" "$here/infer_detections.py" --mode=tune \
  --topology="${topology:-ssd_resnet50_v1}" --data_location="$dataset_location" \
  --input_graph="$input_model" --output_model="${output_model:-./tune.pb}" "${more[@]}"
