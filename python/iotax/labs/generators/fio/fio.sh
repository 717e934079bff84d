# fio on a path that is up. `paths.sh with` reads this behind its own functions. What is begun is written into a journal first, so
# that whoever takes the path down ends it; and fio ends by itself some time after the window.
#
#   load_ready DEVICE            fails with what this host lacks; ENGINE io_uring or libaio, DIRECT 0 or 1 on standard output
#   load_begin DEVICE JOB        the job's text
#   load_end BEGIN_MS END_MS     of the window, by this host's clock: ROW lines of fio's histogram logs around it, JSON what it said
RUN=$FOLDER/fio-$(uname -n)

load_ready() {
    command -v fio >/dev/null 2>&1 || die "missing fio is not installed on this host"
    _ways=$(fio --enghelp 2>/dev/null)
    # Where the kernel lets nobody use it, the other is left.
    case "$(content "$PROCFS/sys/kernel/io_uring_disabled")" in '' | 0) _ways=$(echo "$_ways" | grep -w -e io_uring -e libaio) ;; *) _ways=libaio ;; esac
    case "$_ways" in *io_uring*) echo ENGINE io_uring ;; *libaio*) echo ENGINE libaio ;; *) die "missing $(fio --version) on this host has neither io_uring nor libaio" ;; esac
    [ ! -b "$1" ] || { (root "starting fio" fio --version) >/dev/null || exit 1; }
    # A file system in memory takes no direct I/O.
    if [ -b "$1" ] || dd if="$1" iflag=direct bs=4096 count=1 of=/dev/null status=none 2>/dev/null; then echo DIRECT 1; else echo DIRECT 0; fi
}

load_begin() {
    using "$1"
    echo "$2" >"$RUN/job" || die "disk_full $RUN/job cannot be written"
    if [ -b "$1" ] && [ "$(id -u)" != 0 ]; then set -- sudo -n; else set --; fi
    (
        cd "$RUN" || exit 1
        # Nobody but root may signal root's fio: it ends where it finds the file `over`.
        "$@" fio --eta=never --output-format=json --output=said.json --trigger-file="$RUN/over" --trigger=true job
        echo $? >ended
    ) >"$RUN/log" 2>&1 </dev/null 3>&- &
}

fio_has_ended() { [ -e "$RUN/ended" ]; }
fio_why() { { grep -i "fio:\|error\|sudo" "$RUN/log" || tail -n 1 "$RUN/log"; } 2>/dev/null | head -n 1; }

load_end() {
    ! fio_has_ended || die "fio ended before the window did: $(fio_why)"
    _step=$(sed -n 's/^log_hist_msec=//p' "$RUN/job")
    # fio logs no row that it has not filled.
    while [ "$(date +%s)000" -lt "$(($2 + _step + 1000))" ]; do sleep 0.2; done
    : >"$RUN/over"
    until_true "$WAIT_S" fio_has_ended || die "fio does not end"
    # Two rows of each job and direction on either side: a row has what happened since the one before.
    for _file in "$RUN"/h_clat_hist.*.log; do
        _job=${_file%.log}
        awk -F ', *' -v job="${_job##*.}" -v begin="$1" -v end="$2" -v step="$_step" '
            $1 > begin - 2 * step && $1 < end + 2 * step {
                row = "ROW " job " " $1 " " $2 " " $3
                for (i = 4; i <= NF; i++) if ($i > 0) row = row " " i - 4 ":" $i
                print row
            }' "$_file" || die "fio wrote no log: $(fio_why)"
    done
    sed 's/^/JSON /' "$RUN/said.json"
    down_using
}

# down_using: fio ends, and what it wrote goes.
down_using() {
    [ -f "$USING" ] || return 0
    if [ -d "$RUN" ] && ! fio_has_ended; then
        : >"$RUN/over"
        until_true "$WAIT_S" fio_has_ended || die "in_use fio does not end on this host"
    fi
    rm -rf "$RUN" "$USING"
}
