# iSCSI over TCP.
. /lab/iscsi_common.sh
target_up() { iscsi_target_up; }
target_down() { iscsi_target_down; }
# access_set PATH STATE, access_show PATH: numbered from 1, as portal groups are (ALUA, SPC-4 table 232).
access_set() {
    case "$2" in
    optimized) echo 0 ;;
    inaccessible) echo 3 ;;
    esac >$(group_of $1)/alua_access_state
}
access_show() {
    case "$(cat $(group_of $1)/alua_access_state)" in
    0) echo optimized ;;
    3) echo inaccessible ;;
    esac
}
initiator_up() {
    load iscsi_tcp
    iscsi_initiator_up tcp
}
initiator_down() { iscsi_initiator_down; }
