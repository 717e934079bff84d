# fio in a guest: on its own job, with the clocks read twice while it does I/O and no more.
FIO=/run/fio

# fio_begin PATH FIRST LAST DAEMON JOB: fio has done I/O on PATH for FIRST seconds; the clocks then, and LAST seconds later.
fio_begin() {
    mkdir -p $FIO && rm -f $FIO/*
    printf '%s' "$5" >$FIO/job
    _done=$(bytes_of "$1")
    (
        cd $FIO && fio --output-format=json+ --output=$FIO/output $FIO/job
        echo $? >$FIO/ended
    ) >$FIO/said 2>&1 3>&- &
    first_on_the_processor
    # Its programs and threads come up by the guest's own clock, which says nothing of when the first I/O is done.
    _left=1200
    until fio_begun "$1"; do
        _left=$((_left - 1))
        [ $_left -gt 0 ] || die "fio does no I/O"
        sleep 0.05
    done
    [ ! -e $FIO/ended ] || die "fio: $(tail -n 3 $FIO/said)"
    fio_later "$2" "$4"
    fio_later "$3" "$4"
}

# first_on_the_processor: from here on this script need not wait for fio, which may keep the only processor busy.
first_on_the_processor() {
    read -r _pid _ </proc/self/stat
    renice -n -20 -p "$_pid" >&2
}

# fio_begun PATH: of a file in memory nobody counts what is read and written.
fio_begun() {
    [ -e $FIO/ended ] || [ "$(bytes_of "$1")" != "$_done" ] || case "$1" in
    /volume/*) pidof fio >/dev/null ;;
    *) return 1 ;;
    esac
}

# fio_later SECONDS DAEMON: the clocks so much later, of this machine, of fio, and of who serves a virtual disk.
fio_later() {
    sleep "$1"
    read -r uptime _ </proc/uptime
    read -r stat </proc/stat
    echo "COUNTERS $uptime $stat"
    process_clock FIO "$(pidof fio)"
    [ -z "$2" ] || process_clock DISK "$2"
}

# process_clock NAME PID: ticks in user space and in the kernel; nothing of a process that has ended.
process_clock() { [ -z "$2" ] || [ ! -e "/proc/$2/stat" ] || awk -v name="$1" '{ print name, $14, $15 }' "/proc/$2/stat"; }

# fio_end: what it says of its run.
fio_end() {
    until_true 60 [ -e $FIO/ended ] || die "fio does not end"
    [ "$(cat $FIO/ended)" = 0 ] || die "fio: $(tail -n 3 $FIO/said)"
    cat $FIO/output
}
