#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 mem=2048 timeout=600 threads
"""The soak on four CPUs at once, with hooks that stay armed."""
import soak

if __name__ == "__main__":
    soak.run(reloads=False)
