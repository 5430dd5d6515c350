#!/usr/bin/env bash
# The steps of the action. The inputs are in the environment, so that no input is part of a script. Needs jq, which the
# runners of GitHub have.
set -euo pipefail

command -v hf-meta >/dev/null || bash -c "$INSTALL"

# One on each line, or separated by spaces in a single line. `read` fails at the end of the text.
if [[ $SOURCES == *$'\n'* ]]; then
    sources=()
    while read -r source; do
        [ -z "$source" ] || sources+=("$source")
    done <<<"$SOURCES"
else
    read -r -d "" -a sources <<<"$SOURCES" || true
fi
options=(--sarif)
[ "$STRICT" != true ] || options+=(--strict)
[ "$ALL" != true ] || options+=(--all)
status=0
hf-meta verify "${options[@]}" -- "${sources[@]}" >"$SARIF_FILE" || status=$?
echo "sarif-file=$SARIF_FILE" >>"$GITHUB_OUTPUT"

# The findings, and what could not be read, each with its level, kind, file and message.
found=$(jq -c '
    .runs[].results[]
    | { level, kind: .ruleId, message: .message.text,
        file: .locations[0].physicalLocation.artifactLocation.description.text }
' "$SARIF_FILE")

# As annotations of the log: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
jq -r '
    def escaped: gsub("%"; "%25") | gsub("\r"; "%0D") | gsub("\n"; "%0A");
    def property: escaped | gsub(":"; "%3A") | gsub(","; "%2C");
    { error: "error", warning: "warning", note: "notice" }[.level] as $command
    | "::\($command) file=\(.file | property),title=\(.kind)::\(.message | escaped)"
' <<<"$found"

# As a table on the page of the run. Texts come from files, so their markup is escaped.
if [ -n "${GITHUB_STEP_SUMMARY-}" ]; then
    case $status in 0) result=passed ;; 1) result=failed ;; *) result="not everything could be checked" ;; esac
    {
        echo "### hf-meta verify: $result"
        echo
        if [ -n "$found" ]; then
            echo "| level | kind | file | message |"
            echo "|---|---|---|---|"
            jq -r '
                def cell: gsub("[\r\n]+"; " ") | gsub("(?<c>[\\\\`*_<>\\[\\]|&$@~#!])"; "\\\(.c)");
                "| \(.level) | \(.kind) | \(.file | cell) | \(.message | cell) |"
            ' <<<"$found" | head -n 1000
        else
            echo "No findings in ${#sources[@]} source(s)."
        fi
    } >>"$GITHUB_STEP_SUMMARY"
fi
exit "$status"
