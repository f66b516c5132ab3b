#!/bin/bash
# Everything is in conf.yaml; the model is a factory of ../efficientnet_lite0.py. No other Python.
# ./run_tuning.sh --dataset_location=DIR [--output_model=DIR] [--config=conf.yaml] [--images=N]
# DIR holds images/ and val_map.txt ("file label" a line).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data= output=efficientnet_lite0_int8 config=$here/conf.yaml images=
for word in "$@"; do
  value=${word#*=}
  case $word in
    --dataset_location=*) data=$value ;;
    --output_model=*) output=$value ;;
    --config=*) config=$value ;;
    --images=*) images=$value ;;
    *) echo "error: $word is not known; known are --dataset_location= --output_model= --config=" \
            "--images=" >&2; exit 2 ;;
  esac
done
[ -n "$data" ] || { echo "error: --dataset_location= is needed" >&2; exit 2; }
for part in images val_map.txt; do
  [ -e "$data/$part" ] || { echo "error: $data has no $part: it should hold images/ and" \
    "val_map.txt, with a line 'file label' for each image" >&2; exit 2; }
done
case $images in *[!0-9]* | 0) echo "error: --images=$images should be a number from 1 up" >&2
  exit 2 ;; esac
# Every second image is calibrated on, the others judge; paths in the yaml are relative to here.
ln -sfn "$(cd "$data" && pwd)/images" imagenet_images
awk 'NR % 2 == 1' "$data/val_map.txt" | head -n "${images:-1000000}" > calibration_images.txt
awk 'NR % 2 == 0' "$data/val_map.txt" | head -n "${images:-1000000}" > evaluation_images.txt
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python}" -m lpot.cli tune "$config" --model efficientnet_lite0:model --output "$output"
