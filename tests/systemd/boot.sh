#!/bin/sh
# boot.sh FOLDER NAME OPTION…: runs systemd-nspawn on FOLDER, with a writable layer in memory over it,
# until the standard input ends. Its mounts and cgroup are its own, so it needs no systemd here.
set -eu
if [ -z "${OWN_MOUNTS:-}" ]; then
    OWN_MOUNTS=1 exec unshare --mount --propagation private sh "$0" "$@"
fi
folder=$1 name=$2 cgroup=/sys/fs/cgroup/$2
shift 2
umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mkdir "$cgroup"
mount -t tmpfs -o mode=755 none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o "lowerdir=$folder,upperdir=/mnt/upper,workdir=/mnt/work" none /mnt/root

boot() {
    echo 0 >"$cgroup/cgroup.procs"
    exec systemd-nspawn --quiet --directory=/mnt/root --machine="$name" --register=no --keep-unit \
        --link-journal=no --timezone=off --console=read-only "$@" </dev/null
}

# What started this may have been killed. A shell gives commands in the background no input.
exec 3<&0
(
    cat <&3 >/dev/null
    echo 1 >"$cgroup/cgroup.kill"
) &

# It ends with 133 when the machine is to be restarted.
until (boot "$@"); do
    [ $? = 133 ] || break
done
wait
until find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null; do
    sleep 0.1
done
