#!/bin/busybox sh
# The first process of the small Linux in which uhyve runs. It does what the host tool asks for by
# the first port of the virtual serial device; what uhyve prints goes out by the second.

for program in head ifconfig insmod killall mkdir mount nc poweroff rm sh stat tar; do
    /bin/busybox ln -s busybox "/bin/$program"
done
export PATH=/bin
mkdir -p /proc /sys /dev /tmp /job
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs -o size=100% tmpfs /tmp
mount -t tmpfs -o size=100% tmpfs /job
while read -r module; do
    insmod "/modules/$module" || echo "cannot load $module"
done < /modules/order
ifconfig lo up

exec 3<> /dev/vport0p1 4> /dev/vport0p2

# job TOKEN: what the tool has put into /job/run, and how it ended.
job() {
    sh /job/run < /dev/null >&4 2> /tmp/complaint
    printf '\037%s %d\n' "$1" "$?" >&4
}

echo ready >&3
while read -r verb argument size <&3; do
    case $verb in
    put) head -c "$size" <&3 > "$argument" ;;
    unpack)
        mkdir -p "$argument"
        head -c "$size" <&3 | tar xf - -C "$argument"
        ;;
    start) job "$argument" & ;;
    kill) killall -9 uhyve ;;
    clean) rm -rf /job/* /tmp/* ;;
    pack) tar cf /tmp/packed -C "$argument" . ;;
    bridge) nc 127.0.0.1 "$argument" <> /dev/vport0p3 >&0 & ;;
    get)
        if [ -e "$argument" ]; then
            # It may be growing meanwhile.
            size=$(stat -c %s "$argument")
            echo "$size" >&3
            head -c "$size" "$argument" >&3
        else
            echo none >&3
        fi
        continue
        ;;
    esac
    echo "done $?" >&3
done
poweroff -f
