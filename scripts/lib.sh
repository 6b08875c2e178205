# shellcheck shell=sh disable=SC2034
# What the scripts of the test lab share; they source it. Defines $top (the
# source tree), $build (everything that is downloaded or made) and a few
# functions.

top=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$top/build
me=${0##*/}

say() { printf '%s: %s\n' "$me" "$*" >&2; }
die() { say "$*"; exit 1; }

# The release this machine runs, as its code name.
host_suite() {
	sed -n 's/^VERSION_CODENAME="\{0,1\}\([a-z]*\)"\{0,1\}$/\1/p' /etc/os-release
}

# Take the lock NAME until this script ends, so that two runs don't make the
# same thing at the same time.
lock() {
	mkdir -p "$build"
	exec 9>"$build/.lock-$1"
	flock -n 9 || { say "waiting for another run that makes $1"; flock 9; }
}

# apt-get download of PACKAGE[=VERSION]... into the current directory; the
# package lists are brought up to date only if that's needed.
fetch_debs() {
	apt-get -qq -o APT::Sandbox::User=root download "$@" 2>/dev/null && return
	say "updating the package lists"
	apt-get -qq update >&2 && apt-get -qq -o APT::Sandbox::User=root download "$@" >&2
}

# The machine's own Debian package sources in one-line form, for another suite
# where one is named: debian_sources [SUITE]. Third-party sources are left out:
# only entries of this release's suites that are signed by Debian's own key are
# used, whether they are in *.list or in *.sources files.
debian_sources() {
	code=$(host_suite)
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list \
		 /etc/apt/sources.list.d/*.sources; do
		[ -f "$f" ] || continue
		case $f in
		*.list) sed -n 's/^[[:space:]]*deb[[:space:]]/deb /p' "$f" ;;
		*) deb822_lines "$f" ;;
		esac
	done | awk -v code="$code" -v want="${1:-$code}" '
	{
		opt = ""
		rest = $0
		sub(/^deb[ \t]+/, "", rest)
		if (match(rest, /^\[[^]]*\][ \t]*/)) {
			opt = substr(rest, 1, RLENGTH)
			rest = substr(rest, RLENGTH + 1)
			sub(/\][ \t]*$/, "] ", opt)
		}
		if (opt ~ /signed-by/ && opt !~ /debian-archive/)
			next
		n = split(rest, w, /[ \t]+/)
		if (n < 3 || w[2] !~ "^" code "(-updates|-security)?(/|$)")
			next
		main = 0
		for (i = 3; i <= n; i++)
			if (w[i] == "main")
				main = 1
		if (!main)
			next
		# sid and backports have neither updates nor security
		if (want ~ /^sid$|-backports$/ && w[2] != code)
			next
		sub("^" code, want, w[2])
		line = "deb " opt w[1] " " w[2] " main"
		if (!seen[line]++)
			print line
	}'
}

# The stanzas of a deb822 sources file as one-line entries.
deb822_lines() {
	awk '
	function flush(   i, j, nu, ns, u, s, o) {
		nu = split(f["uris"], u, /[ \t]+/)
		ns = split(f["suites"], s, /[ \t]+/)
		o = f["signed-by"] ~ /^\// ? "[signed-by=" f["signed-by"] "] " : ""
		if (f["signed-by"] != "" && o == "")
			o = "[signed-by=inline] "
		if (f["types"] ~ /(^| )deb( |$)/ && tolower(f["enabled"]) != "no")
			for (i = 1; i <= nu; i++)
				for (j = 1; j <= ns; j++)
					print "deb " o u[i] " " s[j] " " f["components"]
		delete f
	}
	/^#/ { next }
	/^[ \t]*$/ { flush(); next }
	/^[ \t]/ { sub(/^[ \t]+/, ""); f[key] = f[key] == "" ? $0 : f[key] " " $0; next }
	{
		key = tolower(substr($0, 1, index($0, ":") - 1))
		val = substr($0, index($0, ":") + 1)
		gsub(/^[ \t]+|[ \t]+$/, "", val)
		f[key] = val
	}
	END { flush() }' "$1"
}

# The machine's own ways of fetching packages (proxy, retries, date checks), as
# an apt configuration.
apt_fetch_conf() {
	apt-config dump | grep -E '^Acquire::(https?|Retries|Check|Languages)' || :
}

unlock() { exec 9>&-; }

# The source files in what is named, below $top.
sources_in() {
	(cd "$top" && find "$@" -type f ! -name '.*' ! -name '*.o' -print | sort)
}

# What portsteer is made of, and the digest of that: what is there already and is
# of the same sources need not be made again.
module_parts="Kbuild VERSION include src"
module_digest() {
	# shellcheck disable=SC2086
	(cd "$top" && sources_in $module_parts | xargs sha256sum | sha256sum)
}
