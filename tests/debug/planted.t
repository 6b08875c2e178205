#!/bin/bash
# A debug kernel finds what it is there to find: planted.ko commits one fault of
# each kind, each in a guest of its own, and what the guest says must be the report
# of that fault. $KERNEL is the kernel.
set -uo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
top=$(dirname -- "$(dirname -- "$here")")
kernel=${KERNEL:-6.1-debug}

# What is to be found, and by which words.
case $kernel in
*-debug) faults='
use-after-free          BUG: KASAN: (slab-)?use-after-free
use-after-grace-period  BUG: KASAN: (slab-)?use-after-free
out-of-bounds           BUG: KASAN: slab-out-of-bounds
double-free             BUG: KASAN: (double-free|double-free or invalid-free)
leak                    unreferenced object
sleep-in-atomic         BUG: (scheduling while atomic|sleeping function called)
two-orders              WARNING: possible circular locking dependency
softirq                 WARNING: inconsistent lock state
rcu-without-lock        WARNING: suspicious RCU usage
sleep-under-rcu         (BUG: sleeping function called|Voluntary context switch within RCU)
free-queued-work        ODEBUG: free active
free-twice-by-rcu       (ODEBUG: activate active|kvfree_call_rcu|call_rcu.. called twice|double-free)
broken-list             list_add (double add|corruption)
put-too-often           refcount_t: addition on 0
'
	;;
*-kcsan) faults='
data-race               BUG: KCSAN: data-race in count_up
'
	;;
*)
	echo "1..0 # SKIP $kernel is no debug kernel"
	exit 0
	;;
esac

module=$("$top/scripts/kbuild" "$kernel" tests/debug)/planted.ko || exit
log=$(mktemp)
trap 'rm -f "$log"' EXIT
n=0 bad=0
verdict() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
		return
	fi
	bad=1
	echo "not ok $n - $2"
	sed 's/^/# /' "$log"
}

# Status 99 is a complaint in the kernel log.
commit() {
	"$top/scripts/guest" --kernel "$kernel" --mem 3072 --timeout 900 \
		${threads:+--smp 4} ${threads:---one-thread} --file "$module" \
		-- insmod planted.ko "fault=$1" >"$log" 2>&1
}

threads=''
commit none
verdict $? "nothing is said of a module without a fault"
while read -r fault words; do
	[ "$fault" ] || continue
	threads=''
	[ "$fault" != data-race ] || threads=' '
	commit "$fault"
	[ $? = 99 ] && grep -qE "$words" "$log"
	verdict $? "$fault"
done <<<"$faults"
echo "1..$n"
exit "$bad"
