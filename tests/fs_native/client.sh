#!/usr/bin/env bash
# client.py with the libraries that the connector needs. fetch.sh brings the connector when it is not there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
FS_NATIVE_DIR=${FS_NATIVE_DIR:-$("$here/fetch.sh")}
export FS_NATIVE_DIR PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../harness
LD_LIBRARY_PATH="$FS_NATIVE_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec python3 "$here/client.py" "$@"
