# shellcheck shell=bash disable=SC2034
# What the tests of installing share; they source it. A test works in a copy of
# a chroot of a Debian release that has dkms, a stock kernel's headers and that
# kernel's modules; both are in build/install.

here=$(cd "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../scripts/lib.sh"
top=$(cd "$here/../.." && pwd)
build=$top/build
version=$(cat "$top/VERSION")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0 failed=0

# The release's own stock kernel, as in scripts/kernel.
series_of() {
	case $1 in
	bookworm) echo 6.1 ;;
	trixie) echo 6.12 ;;
	*) die "no Debian release $1 in tests/install/lib.sh" ;;
	esac
}

# ok NAME COMMAND...: a test that passes if the command does; what that printed
# is shown if it doesn't.
ok() {
	local name=$1 verdict='ok' status=0
	shift
	n=$((n + 1))
	"$@" >"$work/out" 2>&1 </dev/null || status=$?
	if [ "$status" != 0 ]; then
		verdict='not ok' failed=$((failed + 1))
	fi
	echo "$verdict $n - $name"
	[ "$status" = 0 ] || {
		echo "# status $status of: $*"
		tail -n 40 "$work/out" | sed 's/^/# /'
	}
	[ -t 1 ] || say "$verdict - $name"
	return 0
}

plan() {
	echo "1..$n"
	[ "$failed" = 0 ] || return
	rm -rf "$build"/install/*/"${0##*/}"
}

# A string as a regex.
quoted() { sed 's/[][().*+?^$|\\{}]/\\&/g' <<<"$1"; }

# says REGEX COMMAND...: the command succeeds, and prints a line like that.
says() {
	local regex=$1
	shift
	"$@" 2>&1 | tee "$work/said"
	grep -qE -- "$regex" "$work/said" || { echo "no line like: $regex"; return 1; }
}

# lacks STRING COMMAND...: it succeeds and doesn't print that.
lacks() {
	local string=$1
	shift
	"$@" >"$work/said" 2>&1 || return
	cat "$work/said"
	! grep -qF -- "$string" "$work/said"
}

# fails_with STATUS REGEX COMMAND...
fails_with() {
	local want=$1 regex=$2 status=0
	shift 2
	"$@" >"$work/said" 2>&1 || status=$?
	cat "$work/said"
	[ "$status" = "$want" ] || { echo "status $status, not $want"; return 1; }
	# dkms breaks its messages into lines
	tr '\n' ' ' <"$work/said" | grep -qE -- "$regex" || { echo "nothing like: $regex"; return 1; }
}

# The working tree as a git tree for `make dist`: what a commit of all would be.
snapshot() {
	cp "$(git -C "$top" rev-parse --absolute-git-dir)/index" "$work/index"
	GIT_INDEX_FILE=$work/index git -C "$top" add -A
	GIT_INDEX_FILE=$work/index git -C "$top" write-tree
}

# A fresh chroot of release $1: sets $suite, $root, $series, $kver and $modules.
# It's kept for a look if a test has failed.
start() {
	suite=$1
	series=$(series_of "$suite")
	base=$("$here/chroot" "$suite") || die "no chroot of $suite"
	kver=$(cat "$build/kernels/$series/release")
	root=$build/install/$suite/${0##*/}
	modules=$root/lib/modules/$kver
	rm -rf "$root"
	cp -a "$base" "$root" || die "can't copy the chroot of $suite"
}

trap 'exit 143' TERM
trap 'exit 130' INT

inside() { "$top/scripts/in-chroot" "$root" "$@"; }

# Exactly one module is installed, and it's of version $1.
installed() {
	local found k
	k=$(quoted "$kver")
	found=$(cd "$modules" && find . -name 'portsteer.ko*')
	echo "found: $found"
	case $found in
	./updates/dkms/portsteer.ko|./updates/dkms/portsteer.ko.[gxz]*) ;;
	*) return 1 ;;
	esac
	says "^insmod /lib/modules/$k/updates/dkms/portsteer\.ko" \
		inside modprobe -n -v -S "$kver" portsteer &&
		says "^$(quoted "$1")\$" inside modinfo -k "$kver" -F version portsteer &&
		says "^$k " inside modinfo -k "$kver" -F vermagic portsteer
}

# Boot the kernel with what the chroot has installed beside its own modules:
# the module, and the lists that depmod made there.
boots() {
	local tree=$work/tree
	rm -rf "$tree"
	mkdir -p "$tree"
	cp -r "$modules"/modules.* "$modules/updates" "$tree/" || return
	cp "$here/loads.sh" "$work/"
	"$top/scripts/guest" --kernel "$series" --file "$tree:installed" \
		--file "$work/loads.sh" -- sh loads.sh "$1"
}

# Nothing of portsteer is left in the chroot, which has its sources in /tmp.
clean() {
	local left
	left=$(find "$root" -xdev \( -path "$root/tmp" -o -path "$root/proc" -o \
		-path "$root/var/log" -o -path "$root/dev" \) -prune -o -name '*portsteer*' -print
		find "$root"/lib/modules/*/updates 2>/dev/null)
	echo "left: ${left:-nothing}"
	[ -z "$left" ] || return 1
	lacks portsteer cat "$modules"/modules.{dep,softdep,symbols,alias} &&
		fails_with 1 'Module portsteer not found' \
			inside modprobe -n -v -S "$kver" portsteer
}
