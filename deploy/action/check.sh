#!/usr/bin/env bash
# The step of action.yml: finds or installs palisade, runs `palisade check`, and annotates the files of the pull request.
set -euo pipefail

palisade=$(command -v palisade || true)
if [ -n "${INPUT_ARCHIVE:-}" ]; then
  if [ -z "${INPUT_SHA256:-}" ]; then
    echo "::error::palisade: the input sha256 is required with archive"
    exit 2
  fi
  folder="$RUNNER_TEMP/palisade"
  mkdir -p "$folder"
  curl --fail --silent --show-error --location --output "$folder/archive.tar.gz" "$INPUT_ARCHIVE"
  echo "$INPUT_SHA256  $folder/archive.tar.gz" | sha256sum --check --quiet --strict -
  tar -xzf "$folder/archive.tar.gz" -C "$folder"
  palisade="$folder/palisade"
elif [ -z "$palisade" ]; then
  cargo install --quiet --locked --path "$GITHUB_ACTION_PATH/crates/palisade-cli" --root "$RUNNER_TEMP/palisade"
  palisade="$RUNNER_TEMP/palisade/bin/palisade"
fi

# Words are split at spaces and line breaks; nothing is expanded.
set -f
arguments=(check --output github)
if [ -n "${INPUT_SARIF:-}" ]; then arguments+=(--output "sarif=$INPUT_SARIF"); fi
if [ -n "${INPUT_LEVEL:-}" ]; then arguments+=(--level "$INPUT_LEVEL"); fi
for word in ${INPUT_ARGUMENTS:-}; do arguments+=("$word"); done
arguments+=(--)
for word in ${INPUT_PATHS:-.}; do arguments+=("$word"); done

status=0
"$palisade" "${arguments[@]}" || status=$?
echo "status=$status" >> "$GITHUB_OUTPUT"
exit "$status"
