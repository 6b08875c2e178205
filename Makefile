# SPDX-License-Identifier: GPL-2.0-only
# portsteer's targets; `make help` lists them. What the module is made of is in
# Kbuild.

VERSION := $(shell cat VERSION)
KVER ?= $(shell uname -r)
KDIR ?= /lib/modules/$(KVER)/build
KERNEL ?= host
JOBS ?= 2
export KERNEL

all: modules

help:
	@echo 'make                 build portsteer.ko (KDIR=headers, or KVER=release; W=1)'
	@echo 'make install         build and install through DKMS (KVER=release)'
	@echo 'make uninstall       undo that'
	@echo 'make clean           remove what the build made'
	@echo 'make distclean       and what the lab downloaded and made (build/)'
	@echo 'make dist            build/portsteer-$(VERSION).tar.gz of the last commit'
	@echo
	@echo 'Testing happens in emulated machines with stock kernels; as root on Debian,'
	@echo 'which also installs the packages that it needs:'
	@echo 'make lint            compiler warnings, sparse, checkpatch, shellcheck'
	@echo 'make unit            the unit tests, on this machine'
	@echo 'make test            all tests (KERNEL=series TESTS="files" JOBS=n)'
	@echo 'make shell           a shell in a guest, with the module loaded (KERNEL=series)'
	@echo 'make demo            what portsteer does, in a minute'
	@echo 'make bench           measurements'

modules:
ifeq ($(wildcard $(KDIR)/Makefile),)
	@echo 'No kernel headers in $(KDIR): install linux-headers-$(KVER), or say make KDIR=path' >&2
	@false
else
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules
endif

# Not the kernel's own "make clean", which takes every object file and module
# below here away, those of the kernels in build/ too.
clean:
	find src -name '*.o' -o -name '*.o.d' -o -name '.*.cmd' | xargs -r rm -f
	rm -f portsteer.ko portsteer.o portsteer.mod portsteer.mod.[co] \
		Module.symvers modules.order .*.cmd

distclean: clean
	rm -rf build

lint:
	scripts/lint

# Unit tests are compiled to build/unit/*.t
UNIT = $(wildcard build/unit/*.t)
GUEST = $(sort $(wildcard tests/guest/*.py))
TESTS ?= $(UNIT) $(GUEST)

build-unit:
ifneq ($(wildcard tests/unit/Makefile),)
	MAKEFLAGS= $(MAKE) --no-print-directory -C tests/unit
endif

unit: build-unit
	prove --timer -j$(JOBS) build/unit/*.t

lab:
	scripts/deps
	scripts/guest --kernel $(KERNEL) --prepare
	scripts/build-module $(KERNEL)

# in a second make, which sees the unit tests that were built just now
test: lab build-unit
	@$(MAKE) --no-print-directory prove

prove:
	@prove --timer -j$(JOBS) --exec scripts/run-test $(TESTS)

shell: lab
	scripts/guest --kernel $(KERNEL) --shell \
		--file "$$(scripts/build-module --path $(KERNEL))" --file tests/guest \
		-- insmod portsteer.ko

demo: lab
	scripts/demo

bench: lab
	tests/bench/run

SRC := $(DESTDIR)/usr/src/portsteer-$(VERSION)

install:
	@command -v dkms >/dev/null || { echo 'Install the package dkms first.' >&2; false; }
	-dkms remove -m portsteer -v $(VERSION) --all 2>/dev/null
	rm -rf $(SRC)
	mkdir -p $(SRC)
	cp -r Makefile Kbuild VERSION include src $(SRC)/
	find $(SRC) \( -name '*.o' -o -name '.*.cmd' \) -delete
	sed 's/#MODULE_VERSION#/$(VERSION)/' dkms.conf >$(SRC)/dkms.conf
	dkms add -m portsteer -v $(VERSION)
	dkms build -m portsteer -v $(VERSION) -k $(KVER)
	dkms install -m portsteer -v $(VERSION) -k $(KVER)

uninstall:
	-dkms remove -m portsteer -v $(VERSION) --all
	rm -rf $(SRC)

dist:
	mkdir -p build
	git archive --prefix=portsteer-$(VERSION)/ -o build/portsteer-$(VERSION).tar.gz HEAD

.PHONY: all help modules clean distclean lint build-unit unit lab test prove shell \
	demo bench install uninstall dist
