# SPDX-License-Identifier: GPL-2.0
# Plots what tail.py measured: latency by percentile, a panel for each load.
# gnuplot -e 'dir="where the .tsv files are"' tail.gp

set datafile separator "\t"
set logscale xy
set xrange [2:*]
set xlabel "of the requests, took no longer"
set ylabel "milliseconds"
set xtics ("50%%" 2, "90%%" 10, "99%%" 100, "99.9%%" 1000)
set grid xtics ytics back lt -1 lw 0.5 lc rgb "#dddddd"
set border 3
set tics nomirror
set yrange [3:20000]
set tmargin at screen 0.92
set bmargin at screen 0.13

# The two to compare with in black, those that look at the workers in strong
# colours, the others, most of which lie upon each other, in pale ones.
set linetype 1 lc rgb "#000000" lw 2 dt 2	# the kernel's hash
set linetype 2 lc rgb "#000000" lw 2		# one shared listener
set linetype 3 lc rgb "#c7b8d8" lw 1		# hash
set linetype 4 lc rgb "#e0a060" lw 1.5		# rr
set linetype 5 lc rgb "#b8d0b0" lw 1		# random
set linetype 6 lc rgb "#d62728" lw 2.5		# least
set linetype 7 lc rgb "#b0c8e0" lw 1		# cpu
set linetype 8 lc rgb "#d8c8b0" lw 1		# numa
set linetype 9 lc rgb "#b0d8d8" lw 1		# rxqueue
set linetype 10 lc rgb "#1f77b4" lw 2.5		# idle
set linetype 11 lc rgb "#d0b0c0" lw 1		# consistent
set linetype 12 lc rgb "#e0a060" lw 1.5 dt 2	# rr, weights

panel = 'plot for [i=2:columns] file using 1:i with lines lt i-1 title columnheader(i)'

do for [form in "svg png"] {
	if (form eq "svg") {
		set terminal svg size 1000,440 font "sans,13" background rgb "white"
	} else {
		set terminal pngcairo size 1000,440 font "sans,10" background rgb "white"
	}
	set output dir."/tail.".form
	set multiplot layout 1,2
	do for [load in "pauses slow"] {
		file = dir."/".load.".tsv"
		stats file skip 1 nooutput
		columns = STATS_columns
		set title load eq "pauses" ? "a worker pauses for 200 ms once a second" : "a worker takes 4 times as long"
		left = load eq "pauses" ? 0.08 : 0.49
		set lmargin at screen left
		set rmargin at screen left + 0.32
		# one key for both
		if (load eq "pauses") {
			unset key
		} else {
			set key at screen 0.985, 0.92 Left reverse samplen 2
		}
		@panel
	}
	unset multiplot
	set output
}
