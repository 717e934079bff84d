# Finds a guest's disk by the serial number that its hypervisor gives it. Read by paths.sh, whose functions it uses:
#
#   paths.sh with guest_disk.sh guest_disk SERIAL     DEVICE=/dev/NAME on standard output
#
# Nothing here needs root, and nothing is changed.
UDEV=${UDEV:-/run/udev/data}
LIST_MAX=20

# plain: one line of printable text without backslashes, which `echo` would interpret.
plain() { LC_ALL=C tr -cd ' -[]-~' | sed 's/^ *//; s/ *$//' | cut -c 1-64; }

# disk_serial NAME: what the kernel reports for virtio-blk, NVMe and SCSI (VPD page 80h, whose first 4 bytes are a header: SPC-5
# §7.7.19), otherwise what udev found.
disk_serial() {
    for _from in serial device/serial device/vpd_pg80 udev; do
        case "$_from" in
        udev) _has=$(sed -n 's/^E:ID_SCSI_SERIAL=//p; s/^E:ID_SERIAL_SHORT=//p' "$UDEV/b$(content "$SYSFS/block/$1/dev")" 2>/dev/null | head -n 1 | plain) ;;
        *vpd_pg80) _has=$(tail -c +5 "$SYSFS/block/$1/$_from" 2>/dev/null | plain) ;;
        *) _has=$(content "$SYSFS/block/$1/$_from" | head -n 1 | plain) ;;
        esac
        [ -z "$_has" ] || { printf '%s\n' "$_has"; return; }
    done
}

# guest_disk SERIAL
guest_disk() {
    _disks='' _listed='' _count=0 _cut=''
    for _block in "$SYSFS"/block/*; do
        _name=${_block##*/}
        case "$_name" in
        # Not disks of their own; nvme0c0n1 is a path of nvme0n1.
        '*' | loop* | ram* | zram* | sr* | fd* | dm-* | md* | nvme*c*n*) continue ;;
        esac
        _serial=$(disk_serial "$_name")
        _count=$((_count + 1))
        [ "$_count" -gt "$LIST_MAX" ] || _listed="$_listed${_listed:+, }$_name ${_serial:-without a serial number}"
        [ -n "$_serial" ] || continue
        [ "$_serial" != "$(printf %.20s "$1")" ] || _cut=$_name
        [ "$_serial" = "$1" ] || continue
        # Several paths to one disk are one disk.
        _above=$(mpath "$_name") && _name=$_above
        case " $_disks " in *" $_name "*) ;; *) _disks="$_disks $_name" ;; esac
    done
    [ "$_count" -le "$LIST_MAX" ] || _listed="$_listed and $((_count - LIST_MAX)) more"
    _wanted=$1
    set -- $_disks
    case $# in
    1) echo "DEVICE=/dev/$1" ;;
    0)
        # virtio 1.2 §5.2.6 (GET_ID) and NVMe base 2.1 §5.1.13 (SN).
        [ -z "$_cut" ] || die "usage the serial number $_wanted has ${#_wanted} characters, but virtio-blk and NVMe disks keep only 20: $_cut has $(printf %.20s "$_wanted"). Give the disk a serial number of at most 20 characters, or write guest-disk://$(printf %.20s "$_wanted")"
        die "not_found no disk of this host has the serial number $_wanted; its disks: ${_listed:-none}. A hypervisor shows a serial number only if you set one: <serial>$_wanted</serial> in the disk of libvirt, serial=$_wanted in Proxmox (qm set), serial: $_wanted in the disk of KubeVirt; then stop and start the guest"
        ;;
    *) die "usage several disks of this host have the serial number $_wanted: $*. Give each disk its own serial number, or name the device: /dev/disk/by-path/…" ;;
    esac
}
