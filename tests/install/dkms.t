#!/bin/bash
# Installs through DKMS what `make dist` makes, in Debian 12 and 13 (or in the
# releases that are named as arguments), loads it on the release's own kernel,
# replaces it by another version and removes it.
set -uo pipefail
. "$(dirname -- "$0")/lib.sh"

[ $# -gt 0 ] || set -- bookworm trixie

dist() { make -C "$top" --no-print-directory dist REF="$(snapshot)"; }

# Unpack the tarball as version $1 in the chroot's /tmp.
unpack() {
	tar -x -C "$root/tmp" --transform "s,^[^/]*,portsteer-$1," \
		-f "$build/portsteer-$version.tar.gz" || return
	[ "$1" != "$version" ] || return 0
	echo "$1" >"$root/tmp/portsteer-$1/VERSION"
	sed -i "s/^PACKAGE_VERSION=.*/PACKAGE_VERSION=\"$1\"/" "$root/tmp/portsteer-$1/dkms.conf"
}

dkms() { inside dkms "$@"; }

# Everything for dkms to build on but the headers themselves.
fake_kernel() {
	mkdir -p "$root/lib/modules/$1/build/include"
	cp "$root/usr/src/linux-headers-$kver/.config" "$root/lib/modules/$1/build/"
}

excluded='BUILD_EXCLUSIVE directive +which does not match this kernel/arch/config'

skipped() {	# skipped KERNEL
	fails_with 77 "$excluded" dkms build "portsteer/$version" -k "$1" &&
		lacks "$1" dkms status &&
		[ ! -e "$root/lib/modules/$1/updates" ]
}

only() {	# only VERSION
	ls -d "$root"/usr/src/portsteer-* "$root"/var/lib/dkms/portsteer/[0-9]* &&
		[ "$(cd "$root/usr/src" && echo portsteer-*)" = "portsteer-$1" ] &&
		[ "$(cd "$root/var/lib/dkms/portsteer" && echo [0-9]*)" = "$1" ]
}

ok "make dist" dist

for suite; do
	say "$suite"
	start "$suite"
	ok "$suite: the tarball unpacks" unpack "$version"

	ok "$suite: dkms add" dkms add "/tmp/portsteer-$version"
	ok "$suite: dkms build" dkms build "portsteer/$version" -k "$kver"
	ok "$suite: it is built, not installed" \
		says "^portsteer/$version, $(quoted "$kver"), x86_64: built" dkms status
	ok "$suite: dkms install" dkms install "portsteer/$version" -k "$kver"
	ok "$suite: modprobe finds it" installed "$version"
	ok "$suite: it loads on $kver" boots "$version"

	for k in 5.4.0-1-amd64 5.9.0-5-amd64 7.4.1+deb14-amd64 7.30.0-1-amd64 8.0.0-1-amd64; do
		fake_kernel "$k"
		ok "$suite: dkms skips $k" skipped "$k"
		rm -rf "$root/lib/modules/$k"
	done
	fake_kernel "$kver.plain"
	sed -i '/^CONFIG_KPROBES=/d' "$root/lib/modules/$kver.plain/build/.config"
	ok "$suite: dkms skips a kernel without kprobes" skipped "$kver.plain"
	rm -rf "$root/lib/modules/$kver.plain"

	# an upgrade by hand: the newer version takes the place of the older one
	new=$version.1
	unpack "$new"
	ok "$suite: dkms install of a newer version" \
		dkms install "/tmp/portsteer-$new" -k "$kver"
	ok "$suite: it has replaced the older one" installed "$new"
	ok "$suite: dkms remove of the older one" dkms remove "portsteer/$version" --all
	ok "$suite: the newer one stays" installed "$new"
	ok "$suite: dkms remove of the newer one" dkms remove "portsteer/$new" --all
	rm -rf "$root"/usr/src/portsteer-*	# as dkms(8) has it
	ok "$suite: dkms remove leaves nothing" clean

	# and by the Makefile, over a version that was added with dkms alone
	ok "$suite: another version is added" dkms add "/tmp/portsteer-$new"
	ok "$suite: make install" \
		inside make -C "/tmp/portsteer-$version" install KVER="$kver"
	ok "$suite: modprobe finds it" installed "$version"
	ok "$suite: only that version is there" only "$version"
	ok "$suite: make uninstall" inside make -C "/tmp/portsteer-$version" uninstall
	ok "$suite: make uninstall leaves nothing" clean
done
plan
