#!/bin/bash
# SQuAD v1.1 and BERT's vocabulary:
#   bash prepare_dataset.sh --output_dir=./data [--source=DIR]
#
# Downloads 1.3 GB and gives OUTPUT/wwm_uncased_L-24_H-1024_A-16 with dev-v1.1.json, vocab.txt and bert_config.json. With
# --source nothing is downloaded: DIR holds a dev json (dev-v1.1.json, or dev*.json), and may hold
# vocab.txt and bert_config.json.
set -e
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=wwm_uncased_L-24_H-1024_A-16
output_dir=./data
for word in "$@"; do
  case $word in
    --output_dir=*) output_dir=${word#*=} ;;
    --source=*) source=${word#*=} ;;
    *) echo "$word: expected --output_dir=DIR or --source=DIR" >&2; exit 2 ;;
  esac
done
target=$output_dir/$name
mkdir -p "$target"
if [ -n "$source" ]; then
  json=$(ls "$source"/dev-v1.1.json "$source"/dev*.json 2>/dev/null | head -n 1)
  [ -n "$json" ] || { echo "$source: holds no dev*.json of SQuAD" >&2; exit 1; }
  cp "$json" "$target/dev-v1.1.json"
  chmod u+w "$target/dev-v1.1.json"
  for file in vocab.txt bert_config.json; do
    [ ! -f "$source/$file" ] || cp "$source/$file" "$target/"
  done
else
  "${PYTHON:-python}" "$here/../../../downloads.py" "$name.zip" "$output_dir" --unpack
  "${PYTHON:-python}" "$here/../../../downloads.py" dev-v1.1.json "$target"
fi
echo "$target"
