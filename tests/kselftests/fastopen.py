#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tcp_fastopen_backup_key.sh: cookies' keys change under listeners of one group,
one after the other; no cookie may be refused."""
# guest: mem=2048 timeout=3000 file=build/kselftests
from lib import ksft

ksft.main(ksft.Test("net/tcp_fastopen_backup_key.sh", (("tcp", 8891),), ways=(
    ksft.Way(joins=16 * 10),)))
