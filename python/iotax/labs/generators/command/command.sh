# The study's own load generator on a path that is up. `paths.sh with` reads this behind its own functions. The command waits in a
# process group of its own until iotax's engine releases it, and is written into a journal first, so that whoever takes the path
# down ends it.
#
#   load_ready DEVICE                  nothing is needed
#   load_begin DEVICE COMMAND RESULT   shell commands, and the file that they write their result into; without it, standard output
#   load_end BEGIN_MS END_MS           RAN seconds, RESULT lines
RUN=$FOLDER/command-$(uname -n)
RESULT_BYTES_MAX=$((16 << 20))
LONGEST_S=${LONGEST_S:-200}

load_ready() { echo "RUN $RUN"; }

load_begin() {
    using "$1"
    { mkdir "$RUN/work" && mkfifo "$RUN/start" && printf '%s\n' "$2" >"$RUN/command" && echo "$3" >"$RUN/result"; } || die "disk_full $RUN cannot be written"
    # Open for both, so that it waits there from now on.
    exec 4<>"$RUN/start"
    setsid sh -c '
        echo $$ >"$1/pid" || exit
        read -r _ <&4
        read -r began _ </proc/uptime
        cd "$1/work"
        sh "$1/command" >"$1/said" 4>&-
        status=$?
        read -r ended _ </proc/uptime
        echo "$status $began $ended" >"$1/ended.part"
        mv "$1/ended.part" "$1/ended"' sh "$RUN" >"$RUN/log" 2>&1 </dev/null 3>&- &
    exec 4>&-
    until_true "$WAIT_S" test -s "$RUN/pid" || die "the command was not started: $(tail -n 1 "$RUN/log")"
}

command_has_ended() { [ -e "$RUN/ended" ] || [ ! -d "$RUN" ]; }

load_end() {
    until_true "$LONGEST_S" command_has_ended || die "the command has not ended $LONGEST_S s after the window; is it told how long to run, as by {seconds}?"
    # Whoever takes the path down may do so while this waits.
    [ -e "$RUN/ended" ] || die "the command was ended with its path"
    read -r _status _began _ended <"$RUN/ended"
    [ "$_status" = 0 ] || die "the command failed with status $_status: $(tail -n 1 "$RUN/log")"
    echo "RAN $(awk -v began="$_began" -v ended="$_ended" 'BEGIN { printf "%.2f", ended - began }')"
    _name=$(content "$RUN/result")
    if [ -n "$_name" ]; then _file=$RUN/work/$_name; else _file=$RUN/said; fi
    [ -f "$_file" ] || die "the command wrote no file $_name; $(tail -n 1 "$RUN/log")"
    [ "$(wc -c <"$_file")" -le "$RESULT_BYTES_MAX" ] || die "the command's result is larger than $((RESULT_BYTES_MAX >> 20)) MiB"
    sed 's/^/RESULT /' "$_file"
    down_using
}

# command_is_gone GROUP: whether no process of the group is left. Its processes may be root's.
command_is_gone() {
    ! cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | awk -v group="$1" '$3 == group && $1 != "Z" { found = 1 } END { exit !found }'
}

# down_using: the command ends, and what it wrote goes.
down_using() {
    [ -f "$USING" ] || return 0
    _group=$(content "$RUN/pid")
    for _signal in TERM KILL; do
        [ -n "$_group" ] && ! command_is_gone "$_group" || break
        kill -s "$_signal" -- "-$_group" 2>/dev/null
        until_true 3 command_is_gone "$_group" || sudo -n kill -s "$_signal" -- "-$_group" 2>/dev/null
    done
    [ -z "$_group" ] || until_true "$WAIT_S" command_is_gone "$_group" || die "in_use the command's process group $_group does not end on this host"
    rm -rf "$RUN" "$USING"
}
