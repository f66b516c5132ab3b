#!/bin/bash
# COCO 2017 as TFRecords: coco_train.record, coco_val.record, coco_test.record.
#
#   . prepare_dataset.sh [--output_dir=./data] [--source=DIR] [--parts=val,train,test] [--masks]
#
# May be sourced or run. Without --source the zip files come from cocodataset.org (27 GB; the val
# part 1.1 GB), checked by their SHA-256; DIR holds
# annotations/ and val2017/, train2017/, test2017/ (whatever is there). No protoc is needed.

_lpot_coco_part() { # part, source folder, output folder, masks
  local part=$1 source=$2 output=$3 masks=$4 images listing
  images=$(ls -d "$source/$part"2017* 2>/dev/null | head -n 1)
  listing=$(ls "$source"/annotations/instances_"$part"2017*.json \
    "$source"/annotations/image_info_"$part"2017*.json 2>/dev/null | head -n 1)
  if [ -z "$images" ] || [ -z "$listing" ]; then
    echo "$source: no images or annotations of $part; left out" >&2
    return 0
  fi
  "${PYTHON:-python}" "$_lpot_coco_here/coco_record.py" --image_dir "$images" \
    --annotations "$listing" --output "$output/coco_$part.record" $masks
}

_lpot_coco_fetch() { # name, folder
  "${PYTHON:-python}" "$_lpot_coco_here/../../downloads.py" "$1" "$2" --unpack
}

_lpot_coco_main() {
  local output=./data source= parts=val,train,test masks= word part
  for word in "$@"; do
    case $word in
      --output_dir=*) output=${word#*=} ;;
      --source=*) source=${word#*=} ;;
      --parts=*) parts=${word#*=} ;;
      --masks) masks=--include_masks ;;
      *) echo "$word: expected --output_dir=, --source=, --parts= or --masks" >&2; return 2 ;;
    esac
  done
  mkdir -p "$output" || return 1
  if [ -z "$source" ]; then
    source=$output/raw
    mkdir -p "$source" || return 1
    _lpot_coco_fetch annotations_trainval2017.zip "$source" || return 1
    for part in ${parts//,/ }; do
      [ "$part" != test ] ||
        _lpot_coco_fetch image_info_test2017.zip "$source" || return 1
      _lpot_coco_fetch "${part}2017.zip" "$source" || return 1
    done
  fi
  for part in ${parts//,/ }; do
    _lpot_coco_part "$part" "$source" "$output" "$masks" || return 1
  done
}

_lpot_coco_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Sourced without arguments, "$@" would be those of the caller's shell.
if [ "${BASH_SOURCE[0]}" = "$0" ] || [ "${1#--}" != "${1:-}" ]; then
  _lpot_coco_main "$@"
else
  _lpot_coco_main
fi
