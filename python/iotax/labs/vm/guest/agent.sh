# Obeys the control port. In: `ID BASE64`, a script. Out: whatever the script writes, then `@end ID STATUS BASE64` with
# what it wrote on standard error. `0 @counters` is answered by the clocks of this machine, `0 @clock` by its time. One script
# at a time; the network under test carries none of this. A script runs beside the reading of the port: where the host goes
# away, the port ends, and the machine with its load.
. /lab/lib.sh
for port in /sys/class/virtio-ports/*; do
    [ "$(cat $port/name 2>/dev/null)" = iotax ] && control=/dev/${port##*/}
done
[ -n "$control" ] || { echo "iotax: the control port is missing"; poweroff -f; }
exec 3<>"$control"
printf '@ready %s\n' "$(uname -r)" >&3
# obey ID BASE64: each script has files of its own, for the next one may come before this one is read.
obey() {
    _script=/run/script.$1
    printf '%s' "$2" | base64 -d >$_script
    (. $_script) >&3 2>$_script.err 3<&- </dev/null
    status=$?
    printf '\n@end %s %s %s\n' "$1" "$status" "$(base64 -w 0 <$_script.err)" >&3
    rm -f $_script $_script.err
}
while IFS=' ' read -r id script <&3; do
    case "$script" in
    "") continue ;;
    @counters) # by the shell alone: what is measured must not be disturbed
        read -r uptime _ </proc/uptime
        read -r stat </proc/stat
        echo "COUNTERS $uptime $stat" >&3
        continue
        ;;
    @clock) # by the shell alone, too: what takes time is a round trip
        echo "CLOCK $EPOCHREALTIME" >&3
        continue
        ;;
    esac
    obey "$id" "$script" &
done
poweroff -f
