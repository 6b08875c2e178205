#!/bin/sh
# In a guest: loads the module that is installed, of version $1, and takes it
# out again. What an installation has added to /lib/modules is in ./installed
# and laid over the kernel's own modules, which the guest can't write.
set -eux

here=/lib/modules/$(uname -r)
modprobe overlay
mount -t overlay -o "ro,lowerdir=/portsteer/installed:$here" overlay "$here"

modprobe portsteer
[ "$(cat /sys/module/portsteer/version)" = "$1" ]
test -e /proc/net/portsteer
cat /proc/net/portsteer
echo 'add tcp 8080 policy=rr' >/sys/class/portsteer/rules
grep 'tcp 8080' /sys/class/portsteer/rules
echo clear >/sys/class/portsteer/rules
rmmod portsteer
test ! -e /proc/net/portsteer
