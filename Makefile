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
	@echo 'make deb             the Debian package portsteer-dkms of it, in build/deb'
	@echo
	@echo 'Testing happens in emulated machines with stock kernels; as root on Debian,'
	@echo 'which also installs the packages that it needs:'
	@echo 'make lint            compiler warnings, sparse, checkpatch, shellcheck'
	@echo 'make unit            the unit tests, on this machine'
	@echo 'make test            all tests (KERNEL=series TESTS="files" JOBS=n)'
	@echo 'make test-matrix     the guest tests on every stock kernel that we support'
	@echo 'make test-all        both of these, with one summary'
	@echo 'make debug-kernel    a kernel that finds faults, built in half an hour (DEBUG=6.1-debug)'
	@echo 'make test-debug      the guest tests on that (PS_QUICK= for their long form)'
	@echo 'make soak            everything at once, for MINUTES=n (SEED=s KERNEL=series)'
	@echo 'make coverage        which lines of the module those tests run there'
	@echo 'make test-kselftests selftests of the kernel, with and without the module'
	@echo 'make test-install    DKMS and the Debian package in Debian 12 and 13'
	@echo 'make shell           a shell in a guest, with the module loaded (KERNEL=series)'
	@echo 'make demo            what portsteer does, in a minute'
	@echo 'make reload          servers restarted under load: what fails, with and without'
	@echo 'make bench           measurements: costs, and tail latency under each policy'

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
# The longest one first, so that the others run beside it.
LONGEST = tests/guest/unload.py
GUEST = $(LONGEST) $(filter-out $(LONGEST),$(sort $(wildcard tests/guest/*.py)))
TESTS ?= $(UNIT) $(GUEST)
SOAK = tests/soak/armed.py tests/soak/reload.py

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

PROVE = prove --timer -j$(JOBS) --exec scripts/run-test
prove:
	@$(PROVE) $(TESTS)

# The table of kernels comes before prove's summary, see scripts/summary-last.
MATRIX = $(patsubst %,build/matrix/%.t,$(shell scripts/matrix list))
test-matrix:
	scripts/matrix prepare
	@scripts/summary-last scripts/matrix table -- $(PROVE) $(MATRIX)

# One run and one summary of it all, in which the host's kernel isn't in the
# matrix again. What takes longest begins first.
test-all: export BRIEF = 1
test-all: lab build-unit
	scripts/matrix prepare
	@$(MAKE) --no-print-directory prove-all

# With a quick form of the soak.
prove-all: export MINUTES ?= 2
prove-all:
	@scripts/summary-last scripts/matrix table -- $(PROVE) $(MATRIX) $(SOAK) $(TESTS)

# A kernel that finds faults: first that it does, then the guest tests, in their
# short form as they take many times as long.
DEBUG ?= 6.1-debug
debug-kernel:
	scripts/debug-kernel $(DEBUG)
	scripts/build-module $(DEBUG)

test-debug: export PS_QUICK ?= 1
test-debug: debug-kernel
	scripts/guest --kernel $(DEBUG) --prepare
	@$(MAKE) --no-print-directory prove KERNEL=$(DEBUG) \
		TESTS="tests/debug/planted.t $(filter %.py,$(TESTS))"

# All that programs and operators do, for MINUTES, in two guests: one whose CPUs
# run at once and whose hooks stay armed, one in which the module comes and goes.
# SEED: as it was printed, for the same once more.
soak: export MINUTES ?= 10
soak: export SEED ?=
soak: lab
	@$(PROVE) --verbose $(SOAK)

# PS_QUICK= LEAST=percent TESTS="tests/guest/..."
coverage:
	scripts/coverage $(filter tests/guest/%.py,$(TESTS))

# The kernel's own selftests give the same results with the module.
test-kselftests: lab
	scripts/kselftests
	@$(PROVE) $(wildcard tests/kselftests/*.py)

shell: lab
	scripts/guest --kernel $(KERNEL) --shell \
		--file "$$(scripts/build-module --path $(KERNEL))" --file tests/guest \
		-- insmod portsteer.ko

demo: lab
	scripts/demo

reload: lab
	scripts/reload

# WRITE=y: the tables and plots in docs/, too
bench: lab
	tests/bench/run $(if $(WRITE),--write)
	tests/bench/run-tail $(if $(WRITE),--write)

SRC := $(DESTDIR)/usr/src/portsteer-$(VERSION)
DKMS_VERSIONS = $(notdir $(patsubst %/,%,$(wildcard /var/lib/dkms/portsteer/[0-9]*/)))
SET_VERSION = sed -i 's/^PACKAGE_VERSION=.*/PACKAGE_VERSION="$(VERSION)"/'

# Any version that is there goes first. That of the Debian package is dpkg's.
install: uninstall
	mkdir -p $(SRC)
	cp -r Makefile Kbuild VERSION include src dkms.conf $(SRC)/
	find $(SRC) \( -name '*.o' -o -name '*.o.d' -o -name '.*.cmd' \) -delete
	$(SET_VERSION) $(SRC)/dkms.conf
	dkms add -m portsteer -v $(VERSION)
	dkms build -m portsteer -v $(VERSION) -k $(KVER)
	dkms install -m portsteer -v $(VERSION) -k $(KVER)

uninstall:
	@command -v dkms >/dev/null || { echo 'Install the package dkms first.' >&2; false; }
	@! dpkg-query -W -f '$${db:Status-Status}\n' portsteer-dkms 2>/dev/null | grep -qx installed || \
		{ echo 'The package portsteer-dkms is installed: remove that first.' >&2; false; }
	for v in $(DKMS_VERSIONS); do dkms remove -m portsteer -v $$v --all || exit; done
	rm -rf $(DESTDIR)/usr/src/portsteer-[0-9]*

# REF: another commit
REF ?= HEAD
DIST = portsteer-$(VERSION)
dist:
	rm -rf build/dist
	mkdir -p build/dist
	git archive --prefix=$(DIST)/ $(REF) | tar -x -C build/dist
	$(SET_VERSION) build/dist/$(DIST)/dkms.conf
	tar -C build/dist -cz --sort=name --owner=0 --group=0 --numeric-owner \
		-f build/$(DIST).tar.gz $(DIST)
	rm -rf build/dist

deb:
	@scripts/deb

# Installation through DKMS and as a Debian package, in chroots of the releases.
test-install:
	@prove --timer --exec scripts/run-test tests/install/*.t

.PHONY: all help modules clean distclean lint build-unit unit lab test prove shell \
	test-matrix test-all prove-all debug-kernel test-debug soak coverage test-kselftests \
	demo reload bench install uninstall dist deb test-install
