# PostgreSQL, and pgbench beside it, on whatever Linux reads this. $PG is the folder of the programs, $PGDATA that of the
# database, $RUN that of the socket and of what the programs say. Whoever reads this has `die`, `until_true SECONDS COMMAND`,
# `as_postgres COMMAND`, since PostgreSQL does not run as root, and `join_group`, which puts the shell that runs it into the
# group that limits the memory.

# used_of_disks STATISTICS...: reads, bytes read, writes, bytes written so far (Documentation/block/stat.rst).
used_of_disks() {
    awk '{ n += $1; read += $3; m += $5; written += $7 } END { printf "%d %.0f %d %.0f\n", n, read * 512, m, written * 512 }' "$@"
}

# used_of_mounts: the same of what /proc/self/mountstats says, on standard input.
used_of_mounts() {
    awk '/^[ \t]*bytes:/ { read += $6; written += $7 } /^[ \t]*READ:/ { reads += $2 } /^[ \t]*WRITE:/ { writes += $2 }
        END { printf "%d %.0f %d %.0f\n", reads, read, writes, written }'
}

# why FILE: the last error that it tells of; its last line where it tells of none.
why() { { grep -i "error\|fatal\|panic" "$1" || cat "$1"; } 2>/dev/null | tail -n 1; }

# server_up OPTIONS
server_up() {
    rm -f $RUN/ended
    (
        join_group
        # Whoever may connect may do all that PostgreSQL's user may.
        as_postgres "exec $PG/postgres -D $PGDATA -k $RUN -c unix_socket_permissions=0700 -c listen_addresses= -c autovacuum=off $1"
        echo $? >$RUN/ended
    ) >$RUN/log 2>&1 </dev/null 3>&- &
    until_true 120 sh -c "[ -e $RUN/ended ] || grep -q ready $PGDATA/postmaster.pid 2>/dev/null"
    grep -q ready $PGDATA/postmaster.pid 2>/dev/null || die "PostgreSQL does not start: $(why $RUN/log)"
}

# server_down: with a checkpoint of its own.
server_down() {
    kill -INT "$(head -n 1 $PGDATA/postmaster.pid)"
    until_true 120 [ -e $RUN/ended ] || die "PostgreSQL does not end"
    [ "$(cat $RUN/ended)" = 0 ] || die "PostgreSQL failed: $(why $RUN/log)"
}

sql() { $PG/psql -h $RUN -U postgres -d postgres -XAtq -F ' ' -v ON_ERROR_STOP=1 "$@"; }

# tables_build SCALE INITDB_OPTIONS: pgbench's in a new database, with nobody left in it.
tables_build() {
    as_postgres "$PG/initdb -D $PGDATA -U postgres -A trust --no-locale -E UTF8 -N --wal-segsize=4 $2" >$RUN/initdb.log 2>&1 ||
        die "initdb: $(why $RUN/initdb.log)"
    server_up "-c fsync=off -c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0 -c min_wal_size=8MB -c max_wal_size=32MB"
    $PG/pgbench -h $RUN -U postgres -i -I dtGvp -q -s "$1" postgres >$RUN/pgbench.log 2>&1 ||
        die "pgbench -i: $(why $RUN/pgbench.log)"
    sql -c checkpoint || die "no checkpoint"
    _size=$(sql -c "select pg_database_size('postgres')")
    server_down
    echo "DATABASE_BYTES $_size"
}

# checkpoints: how many there have been. PostgreSQL 17 counts them elsewhere.
checkpoints() {
    if [ "$(sql -c 'show server_version_num')" -ge 170000 ]; then
        sql -c "select num_timed + num_requested from pg_stat_checkpointer"
    else
        sql -c "select checkpoints_timed + checkpoints_req from pg_stat_bgwriter"
    fi
}

# checkpoint_in SECONDS: there will be one, asked for by a session of its own.
checkpoint_in() {
    (
        sql -c "select pg_sleep($1)" -c checkpoint
        echo $? >$RUN/pgbench/checkpointed
    ) >$RUN/pgbench/checkpoint.log 2>&1 </dev/null 3>&- &
}

# pgbench_with OPTIONS: it tells each of its transactions, and has this shell's place.
pgbench_with() { cd $RUN/pgbench && exec $PG/pgbench -h $RUN -U postgres -n -l "$@" postgres; }

connected() { [ "$(sql -c "select count(*) from pg_stat_activity where application_name = 'pgbench'")" -ge "$1" ]; }
has_ended() { [ -e $RUN/pgbench/ended ]; }
all_connected() { has_ended || connected "$1"; }

# pgbench_up CLIENTS OPTIONS: until every client is connected.
pgbench_up() {
    mkdir -p $RUN/pgbench && rm -f $RUN/pgbench/*
    checkpoints >$RUN/pgbench/checkpoints || die "no answer"
    (
        (sh -c 'echo $PPID' >$RUN/pgbench/pid; pgbench_with -T 86400 -c "$1" $2)
        echo $? >$RUN/pgbench/ended
    ) >$RUN/pgbench/said 2>&1 </dev/null 3>&- &
    until_true 60 all_connected "$1" || die "pgbench's $1 clients are not connected after 60 s"
    ! has_ended || die "pgbench: $(why $RUN/pgbench/said)"
}

# pgbench_down: it ends after the transactions that it has begun.
pgbench_down() {
    kill -ALRM "$(cat $RUN/pgbench/pid)"
    until_true 60 has_ended || die "pgbench does not end"
    [ "$(cat $RUN/pgbench/ended)" = 0 ] || die "pgbench: $(why $RUN/pgbench/said)"
}

# database_told: checkpoints since pgbench came up, once the one that was asked for has ended, and pgbench's version.
database_told() {
    until_true 60 [ -e $RUN/pgbench/checkpointed ] || die "the checkpoint does not end"
    [ "$(cat $RUN/pgbench/checkpointed)" = 0 ] || die "no checkpoint: $(cat $RUN/pgbench/checkpoint.log)"
    echo "CHECKPOINTS $(($(checkpoints) - $(cat $RUN/pgbench/checkpoints)))"
    echo "VERSION $($PG/pgbench --version)"
}
