#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 mem=2048 timeout=600
"""The soak with the module unloaded and loaded meanwhile."""
import soak

if __name__ == "__main__":
    soak.run(reloads=True)
