#!/usr/bin/env bash
# The steps of the action. The inputs are in the environment, so that no input is part of a script. Needs jq, which the
# runners of GitHub have.
set -euo pipefail

command -v hf-meta >/dev/null || bash -c "$INSTALL"

# Separated by spaces or lines. `read` fails at the end of the text.
read -r -d "" -a sources <<<"$SOURCES" || true
options=(--sarif)
[ "$STRICT" != true ] || options+=(--strict)
[ "$ALL" != true ] || options+=(--all)
status=0
hf-meta verify "${options[@]}" -- "${sources[@]}" >"$SARIF_FILE" || status=$?
echo "sarif-file=$SARIF_FILE" >>"$GITHUB_OUTPUT"

# A finding as an annotation of the log: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
jq -r '
    def escaped: gsub("%"; "%25") | gsub("\r"; "%0D") | gsub("\n"; "%0A");
    def property: escaped | gsub(":"; "%3A") | gsub(","; "%2C");
    .runs[].results[]
    | { error: "error", warning: "warning", note: "notice" }[.level] as $command
    | (.locations[0].physicalLocation.artifactLocation.description.text | property) as $file
    | "::\($command) file=\($file),title=\(.ruleId)::\(.message.text | escaped)"
' "$SARIF_FILE"
exit "$status"
