#!/bin/bash
# A BERT fine-tuned on SQuAD v1.1:
#   bash prepare_model.sh --output_dir=./model [--source=DIR]
#
# Without --source BERT-large's checkpoints are downloaded (3.4 GB). DIR is a folder of a BERT checkpoint
# (*.index …), which is copied, or of PyTorch's BertForQuestionAnswering (config.json and
# model.safetensors), which is turned into one.
set -e
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
output_dir=./model
for word in "$@"; do
  case $word in
    --output_dir=*) output_dir=${word#*=} ;;
    --source=*) source=${word#*=} ;;
    *) echo "$word: expected --output_dir=DIR or --source=DIR" >&2; exit 2 ;;
  esac
done
mkdir -p "$output_dir"
if [ -z "$source" ]; then
  "${PYTHON:-python}" "$here/../../../downloads.py" bert_large_checkpoints.zip "$output_dir" --unpack
elif [ -f "$source/model.safetensors" ]; then
  "${PYTHON:-python}" "$here/bert_checkpoint.py" --source "$source" --output_dir "$output_dir"
elif ls "$source"/*.index >/dev/null 2>&1; then
  cp -r "$source"/. "$output_dir/"
else
  echo "$source: holds neither a checkpoint (*.index) nor model.safetensors" >&2
  exit 1
fi
