#!/usr/bin/env bash
# Kills, stops and corrupts workers under load for a minute, or for as many seconds as given:
#
#     tests/chaos.sh [SECONDS]
#
# REMUDA_SEED repeats the choices of an earlier run.
set -euo pipefail

export REMUDA_CHAOS_SECONDS=${1:-60}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo test --release --test integration workers::chaos:: -- --nocapture
