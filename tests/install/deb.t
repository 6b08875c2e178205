#!/bin/bash
# Builds the Debian package, installs it in Debian 12 and 13 (or in the releases
# that are named as arguments), loads it on the release's own kernel, upgrades
# and removes it.
set -uo pipefail
. "$(dirname -- "$0")/lib.sh"

[ $# -gt 0 ] || set -- bookworm trixie
newer=$version.1
package=portsteer-dkms_${version}_all.deb

build() { REF=$(snapshot) "$top/scripts/deb"; }

# The same as a newer version.
build_newer() {
	cp -r "$build/deb/portsteer-$version" "$work/newer"
	cd "$work/newer" || return
	echo "$newer" >VERSION
	sed -i "1s/(.*)/($newer)/" debian/changelog
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS dpkg-buildpackage -us -uc -b
}

inside_dpkg() { says "$1" inside dpkg "${@:2}"; }

ok "make deb: it builds, and lintian has no errors" build
[ -f "$build/deb/$package" ] || { plan; exit; }
ok "a newer version builds" eval '(build_newer)'

for suite; do
	start "$suite"
	cp "$build/deb/$package" "$work"/portsteer-dkms_*.deb "$root/tmp/"
	mkdir -p "$root/lib/modules/5.4.0-1-amd64/build/include"

	ok "$suite: dpkg -i, which builds the module" inside_dpkg . -i "/tmp/$package"
	ok "$suite: the package is there" \
		says "^portsteer-dkms $version installed" inside \
		dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' portsteer-dkms
	ok "$suite: modprobe finds the module" installed "$version"
	ok "$suite: a kernel out of the window was skipped" \
		lacks 5.4.0-1-amd64 inside dkms status
	ok "$suite: make uninstall leaves the package alone" fails_with 2 \
		'portsteer-dkms is installed' inside make -C "/usr/src/portsteer-$version" uninstall
	ok "$suite: it loads on $kver" boots "$version"

	ok "$suite: dpkg -i of a newer version" \
		inside_dpkg . -i "/tmp/portsteer-dkms_${newer}_all.deb"
	ok "$suite: modprobe finds that" installed "$newer"
	ok "$suite: nothing is left of the older one" \
		lacks "portsteer-$version/" find "$root/usr/src" "$root/var/lib/dkms" \
		-path "*/portsteer-$version/*"
	ok "$suite: dkms knows the newer one alone" \
		lacks "portsteer/$version," inside dkms status

	ok "$suite: dpkg --purge" inside_dpkg . --purge portsteer-dkms
	rm -rf "$root/lib/modules/5.4.0-1-amd64"
	ok "$suite: dpkg --purge leaves nothing" clean
done
plan
