# SPDX-License-Identifier: GPL-2.0
# The kernels that portsteer has been tested on. A newer one may have changed
# what is hooked in ways that no prototype shows.

ps-series := $(shell expr $(VERSION) \* 1000 + $(PATCHLEVEL))
ifneq ($(shell expr $(ps-series) \>= 5010 \& $(ps-series) \<= 7003),1)
$(error portsteer is for Linux 5.10 to 7.3, not $(VERSION).$(PATCHLEVEL): see docs/kernels.md)
endif
