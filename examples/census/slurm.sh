#!/usr/bin/env bash
# A census as an array of Slurm tasks: task K reads every N-th part of the list into a shared folder.
#
#     sbatch slurm.sh repos.parquet /shared/census
#
# Run it again after a failure: parts that exist are not read again.
#SBATCH --job-name=census
#SBATCH --array=0-15
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --requeue
set -euo pipefail

# The quota belongs to the account or the address, and all tasks share it.
share=$(awk -v tasks="$SLURM_ARRAY_TASK_COUNT" 'BEGIN { print 1 / tasks }')
status=0
hf-meta census read "$1" -o "$2" --slice "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --quota-share "$share" || status=$?
# 3: some repositories failed. `hf-meta census retry` reads them again after all tasks.
[ "$status" = 3 ] || exit "$status"
